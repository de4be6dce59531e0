"""`myxtts NAME ...`: find the command, run it, and turn our errors into two lines and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from myxtts import __version__
from myxtts.config.suggest import did_you_mean
from myxtts.errors import MyXTTSError, UsageError

COMMANDS: dict[str, str] = {
    "train": "train a voice from a folder of recordings",
    "prepare": "read a corpus once, check every clip, and write shards that training reads",
    "synth": "speak a text with a trained voice",
    "evaluate": "judge a voice by outside ears: words understood, right speaker, naturalness",
    "demo": "from nothing to a voice that speaks, on this machine, in half an hour",
    "demo-corpus": "speak a small English and Persian corpus to try things on",
    "monitor": "watch a running or finished run from another terminal",
    "bench": "compare single, dual, mirrored and hybrid placement on your own data",
    "import-xtts": "turn a folder of published XTTS v2 weights into ours",
    "validate": "check that the dual-GPU pipeline works on this machine, in five parts",
    "doctor": "show what this machine has, what would work and what to fix",
}
"""Name and one line; the module is `myxtts.cli.NAME` with `main(argv) -> int`."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 an error with its cure, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    _write_any_character()
    try:
        return _dispatch(arguments)
    except MyXTTSError as error:
        if debug:
            traceback.print_exc()
        print(f"error: {error.problem}\n  hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`); Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version", "version"):
        print(f"myxtts {__version__}")
        return 0
    if name not in COMMANDS:
        raise UsageError(f"there is no command {name!r}", hint=did_you_mean(name, COMMANDS))
    module = importlib.import_module(f"myxtts.cli.{name.replace('-', '_')}")
    return int(module.main(rest))


def overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return (
        "MyXTTS trains XTTS voices and keeps every device busy while it does.\n\n"
        f"usage: myxtts COMMAND [--debug] ...\n\n{rows}\n\n"
        "Each command explains itself: myxtts COMMAND --help\n"
        "First steps: make demo, then myxtts train --train-data YOUR_FOLDER"
    )


def _write_any_character() -> None:
    """On an ASCII terminal a Persian text is escaped, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    raise SystemExit(main())
