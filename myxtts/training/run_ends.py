"""How a run is started and how it ends: the command, the signals that stop it, and what is written last."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from myxtts.errors import MyXTTSError
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.report import write_report
from myxtts.training.run_folder import RunFolder

logger = logging.getLogger(__name__)


def command_line() -> str:
    """The command that this process was started with."""
    program = Path(sys.argv[0]).name
    return shlex.join(["myxtts" if program == "__main__.py" else program, *sys.argv[1:]])


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGTERM, a closed terminal (SIGHUP) and the first Ctrl-C ask to stop after the step at hand; a second Ctrl-C
    interrupts at once. Under nohup a closed terminal is none of ours.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)
        logger.info("Stopping after this step or clip (again Ctrl-C to stop at once)")

    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_and_record_end(run: Callable[[], bool], events: EventLog, folder: RunFolder) -> bool:
    """Whether it finished. However it ends, the log and the report say so."""
    reason, message = "failed", str(folder.path)
    try:
        finished = run()
        reason = "finished" if finished else "interrupted"
        return finished
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except BaseException as error:  # raised again: the log has it, whatever it is
        message = error.problem if isinstance(error, MyXTTSError) else f"{type(error).__name__}: {error}"
        raise
    finally:
        events.write("run_end", reason=reason, message=message)
        _report(folder)


def _report(folder: RunFolder) -> None:
    """A warning where it cannot be made: it must not hide what the run ended with."""
    try:
        logger.info("Report: %s", write_report(folder.path))
    except Exception as error:  # noqa: BLE001 - whatever it is, what the run ended with is said
        logger.warning("report.html cannot be written to %s: %s: %s", folder.path, type(error).__name__, error)
