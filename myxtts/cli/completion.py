"""`myxtts completion SHELL`: the script that lets a shell complete commands, flags and their values.

tyro writes it, from the same option classes that the commands parse; no TensorFlow.
"""

from __future__ import annotations

import importlib
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
    try:
        with registry:
            tyro.cli(commands, args=["--tyro-print-completion", shell], prog="myxtts", config=FLAT)
    except SystemExit as end:  # tyro ends the process once the script is printed
        return int(end.code or 0)
    return 0


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
