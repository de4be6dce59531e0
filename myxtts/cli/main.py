"""`myxtts NAME ...`: find the command, run it, and turn our errors into two lines and an exit code."""

from __future__ import annotations

# Nothing here that takes time to import: what runs before `main` cannot answer Ctrl-C with one line.
import os
import sys
from collections.abc import Sequence

from myxtts import __version__
from myxtts.cli.commands import COMMANDS
from myxtts.errors import MyXTTSError, UsageError

INTERRUPTED = 130

SAVES_NOTHING = ("synth", "evaluate", "validate", "import-xtts", "export")
"""Commands that Ctrl-C ends in the middle of a computation; the others finish a step and save."""

if "__mp_main__" in sys.modules:
    # A process that reads for training, which imports this before Grain: Grain warns there, through absl, that JAX's
    # profiler is missing, which is not used here.
    import logging

    logging.getLogger("absl").setLevel(logging.ERROR)

CONTINUE = ("train", "prepare", "demo", "collect", "record")
"""Commands that continue when they are called again."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 an error with its hint, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        _set_up_output(debug=debug)
        return _dispatch([argument for argument in arguments if argument != "--debug"])
    except MyXTTSError as error:
        if debug:
            import traceback

            traceback.print_exc()
        from myxtts.monitoring.terminal import escaped

        said = f"error: {error.problem}\n  hint: {_same_command(error.hint, arguments)}"
        print(escaped(said), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        again = "; run the same command again: it continues" if arguments[:1] and arguments[0] in CONTINUE else ""
        print(f"interrupted{_same_command(again, arguments)}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        from myxtts.monitoring.terminal import drop_output

        drop_output(sys.stdout)  # Its reader went away, as in `| head`.
        return 0


def _same_command(hint: str, arguments: Sequence[str]) -> str:
    """The hint, with --fresh taken out of the command to repeat: it would move the checkpoints aside again."""
    if "--fresh" not in arguments:
        return hint
    for words in ("the same command again", "the same command"):
        if words in hint:
            return hint.replace(words, f"{words} without --fresh")
    return hint


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version", "version"):
        print(f"myxtts {__version__}")
        return 0
    if name not in COMMANDS:
        from myxtts.config.suggest import did_you_mean

        raise UsageError(f"there is no command {name!r}", hint=did_you_mean(name, COMMANDS))
    import importlib
    from contextlib import nullcontext

    from myxtts.cli.interrupt import ended_by_ctrl_c

    try:
        module = importlib.import_module(f"myxtts.cli.{name.replace('-', '_')}")
        with ended_by_ctrl_c(INTERRUPTED) if name in SAVES_NOTHING else nullcontext():
            return int(module.main(rest))
    except ModuleNotFoundError as error:
        from myxtts.cli.installed import missing_extra

        missing = missing_extra(error)
        if missing is None:
            raise
        raise missing from error


def overview() -> str:
    from myxtts.cli.installed import can_train
    from myxtts.cli.suited import suited_commands
    from myxtts.runtime.inventory import find_inventory

    trains = can_train()
    first = [
        ("myxtts doctor", "what works on this machine"),
        *([("myxtts demo", "the built-in voice speaks, clones and is trained")] if trains else []),
        *suited_commands(find_inventory(0), trains=trains),
    ]
    layouts = "Layouts of MY_FOLDER: docs/your-data.md\n" if trains else ""
    widest = max(len(command) for command, _ in first)
    steps = "".join(f"  {command:<{widest}}  {why}\n" for command, why in first)
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return (
        "MyXTTS trains XTTS voices and speaks with them.\n\n"
        f"usage: myxtts COMMAND [--debug] ...\n\n{rows}\n\n"
        "First steps:\n"
        f"{steps}{layouts}\n"
        "Each command explains itself, with examples: myxtts COMMAND --help"
    )


def _set_up_output(*, debug: bool) -> None:
    """Set up the output: any character on any terminal, no colours with NO_COLOR, no TensorFlow log."""
    import logging

    from myxtts.monitoring.terminal import write_any_character

    write_any_character()
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("PYTHON_TYRO_ANSI_CODES", "False")  # rich looks at NO_COLOR itself
    if debug:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    else:
        # Warnings for developers, such as retracing; errors still come through.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)


if __name__ == "__main__":
    raise SystemExit(main())
