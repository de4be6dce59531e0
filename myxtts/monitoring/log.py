"""The log that people read: one logger for the package, plain text, on standard error.

A line that cannot be written is lost, and what wrote it goes on: it may be days into a training.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from myxtts.monitoring.terminal import ERRORS, drop_output, escaped

FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def setup_logging(level: int = logging.INFO) -> logging.Logger:
    """The package's logger, writing to standard error. Called twice, it does not write twice."""
    logger = logging.getLogger("myxtts")
    logger.setLevel(level)
    logger.propagate = False  # libraries put handlers of their own on the root logger, and every line would stand twice
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter(FORMAT, datefmt="%H:%M:%S"))
        logger.addHandler(handler)
    return logger


def setup_speaking_log() -> None:
    """For commands that speak: warnings, and why the first speech of a voice takes a while."""
    setup_logging(logging.WARNING)
    logging.getLogger("myxtts.synthesis.opening").setLevel(logging.INFO)


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Looks `sys.stderr` up at each line, so that a redirected stream is followed, and never dies of what it is."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        try:
            encoding = getattr(self.stream, "encoding", None) or "utf-8"
            text = escaped(self.format(record))
            self.stream.write(text.encode(encoding, errors=ERRORS).decode(encoding) + "\n")
            self.flush()
        except BrokenPipeError:
            drop_output(self.stream)  # as where `tee` was killed
        except Exception:  # noqa: BLE001 - whatever it is, what wrote the line goes on
            with suppress(Exception):  # a line that cannot be made is shown with its place in the code, if it can be
                self.handleError(record)
