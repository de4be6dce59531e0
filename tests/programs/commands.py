"""Commands in a process that has imported nothing, and what they import."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from myxtts.cli.installed import TRAINING

HEAVY = {"tensorflow", "keras", "torch"}


def without_tensorflow(code: str, *commands: str) -> None:
    """Each command, a JSON list, ends with the code, and nothing heavy is imported for it."""
    from myxtts.cli.main import main

    for command in commands:
        try:
            found = main(json.loads(command))
        except SystemExit as end:
            found = int(end.code or 0)
        assert found == int(code), (command, found)
    assert not HEAVY & set(sys.modules), HEAVY & set(sys.modules)


def importing(*modules: str) -> None:
    import importlib

    for module in modules:
        importlib.import_module(module)
    assert not HEAVY & set(sys.modules), HEAVY & set(sys.modules)


def where_tensorflow_is_missing(*command: str) -> None:
    from myxtts.cli.main import main

    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # what an import finds where it is not installed
    raise SystemExit(main(command))


class _WithoutTraining(PathFinder):
    """Finds everything but what only training needs, as where the extra `speak` alone is installed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname in TRAINING else super().find_spec(fullname, path, target)


def where_only_speaking_is_installed(*command: str) -> None:
    from myxtts.cli.main import main

    sys.meta_path[:] = [_WithoutTraining if finder is PathFinder else finder for finder in sys.meta_path]
    raise SystemExit(main(command))


def waiting(*command: str) -> None:
    from myxtts.cli.main import main

    print("ready", flush=True)
    raise SystemExit(main(command))


def computing() -> None:
    from myxtts.cli.interrupt import ended_by_ctrl_c

    with ended_by_ctrl_c(130, grace_s=0.1):
        print("ready", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes, without a look at signals


def logging_persian() -> None:
    from myxtts.monitoring.log import setup_logging

    setup_logging()
    logging.getLogger("myxtts.any").info("سلام · dual")


def saying_a_line() -> None:
    from myxtts.monitoring.terminal import write_any_character

    write_any_character()
    print("said")
    time.sleep(60)


def demo_that_waits(saved: str) -> None:
    from myxtts.cli.training_process import run_training

    run_training([sys.executable, "-m", "tests.programs", "commands", "saving_when_asked", saved], 1.0)


def saving_when_asked(saved: str) -> None:
    import signal
    from pathlib import Path

    def save(*_: object) -> None:
        Path(saved).write_text("saved")
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, save)
    print("ready", flush=True)
    time.sleep(60)


def a_transfer_that_is_too_large() -> None:
    from myxtts.cli import validate

    validate.TRANSFER_MB = 2**28  # more than any address space
    check = validate.DualPipelineCheck(validate.ValidateOptions(simulate_gpus=2))
    parts = [("first", check.prerequisites), ("second", check.placement), ("third", check.transfer)]
    print("exit code", validate.run_parts(parts))


def a_stage_of_one_step() -> None:
    from myxtts.cli import validate

    validate.TRAINING_STEPS["gpt"] = 1  # one loss does not fall
    check = validate.DualPipelineCheck(validate.ValidateOptions(simulate_gpus=2))
    parts = [check.prerequisites, check.placement, check.model_creation, check.training]
    print("exit code", validate.run_parts([(part.__name__, part) for part in parts]))


QUESTIONS = {
    question.__name__: question
    for question in (
        *(
            without_tensorflow,
            importing,
            where_tensorflow_is_missing,
            where_only_speaking_is_installed,
            waiting,
            computing,
            logging_persian,
        ),
        *(saying_a_line, demo_that_waits, saving_when_asked, a_transfer_that_is_too_large, a_stage_of_one_step),
    )
}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
