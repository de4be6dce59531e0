"""`myxtts completion SHELL`: the script that lets a shell complete commands, flags and their values.

tyro writes it, from the same option classes that the commands parse, and `mended` makes it work: each change there was
found by typing into the shell. No TensorFlow.
"""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import tyro

from myxtts.cli.commands import COMMANDS
from myxtts.cli.flags import FLAT, parse_options, registry
from myxtts.config.config import XTTSConfig


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Print the completion script of a shell.

    Examples:
      source <(myxtts completion bash)                                       (this bash; for all: into ~/.bashrc)
      myxtts completion zsh > "${fpath[1]}/_myxtts"
      myxtts completion fish > ~/.config/fish/completions/myxtts.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""


OPTIONS = CompletionOptions


def main(argv: list[str]) -> int:
    shell = parse_options(CompletionOptions, argv, command="completion").shell
    commands: Any = Union[tuple(_subcommand(name) for name in COMMANDS)]  # noqa: UP007 - made from a list
    script = io.StringIO()
    try:
        with registry, redirect_stdout(script):
            tyro.cli(commands, args=["--tyro-print-completion", shell], prog="myxtts", config=FLAT)
    except SystemExit as end:  # tyro ends the process once the script is printed
        if end.code:
            raise
    print(mended(script.getvalue()), end="")
    return 0


_CHANGES = {
    # zsh counts words from 1, and tyro from 0: no value would be completed.
    '"${words[@]}" "$CURRENT"': '"${words[@]}" "$((CURRENT - 1))"',
    # Where we know nothing better, an argument is a file: prepare DIR, monitor RUN.
    "  _describe 'myxtts completions' completion_array\n": (
        "  [[ -n \"$completions\" ]] && _describe 'myxtts completions' completion_array || _files\n"
    ),
    "complete -F _tyro_myxtts myxtts": "complete -o default -F _tyro_myxtts myxtts",
    '  COMPREPLY=("${matches[@]}")\n': '  [[ -n "$completions" ]] || matches=()\n  COMPREPLY=("${matches[@]}")\n',
}
"""tyro's words and ours."""


def mended(script: str) -> str:
    """tyro's script with what its users would miss: one line a candidate, descriptions, values in zsh, file names."""
    whole = "".join(_one_line_each(line) for line in script.splitlines(keepends=True))
    for theirs, ours in _CHANGES.items():
        whole = whole.replace(theirs, ours)
    return whole


def _one_line_each(line: str) -> str:
    """The script's table of options, where a help text of two lines would be two candidates."""
    if not line.startswith("COMPLETION_SPEC = "):
        return line
    line = line.replace(r"\\n", " ").replace(r"\n", " ")
    for name, description in COMMANDS.items():
        line = line.replace(f"'{name}': {{'description': '{name}'", f"'{name}': {{'description': '{description}'")
    return line


def options_of(name: str) -> type[Any]:
    """The options of a command, as its own module parses them."""
    options: type[Any] = importlib.import_module(f"myxtts.cli.{name.replace('-', '_')}").OPTIONS
    return options


def _subcommand(name: str) -> Any:
    options = options_of(name)
    description = COMMANDS[name]
    if name != "train":
        return Annotated[options, tyro.conf.subcommand(name=name, description=description)]
    # Resolved, or tyro warns about every setting whose default comes from a preset.
    default = options(settings=XTTSConfig())
    return Annotated[options, tyro.conf.subcommand(name=name, description=description, default=default)]
