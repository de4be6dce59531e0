"""The run's event log: `events.jsonl`, one JSON object a line, only ever appended to.

`schema` has the events. A line is written whole with one system call, so that a killed run or a full disk leaves at
most a torn last line, which readers skip and the next line closes. Numbers that are not finite are written as null:
JSON has no NaN.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from myxtts.files import make_folder, writing
from myxtts.monitoring.parsing import event_of, missing_fields
from myxtts.monitoring.schema import SCHEMA, Event, RunEndEvent, StepEvent

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 5.0
LAST_BYTES = 1 << 16
"""In which a log's last step is looked for."""


class EventLog:
    """Appends events to a file and hands them to subscribers (console, TensorBoard). Safe from any thread."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        # Held again by a subscriber that answers an event with another one.
        self._lock = threading.RLock()
        self._subscribers: list[Callable[[Event], None]] = []
        self._write_failed = False
        with writing(path):
            make_folder(path.parent)
            self._torn = _ends_torn(path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every later event, as a reader of the file gets it, on the writer's thread."""
        self._subscribers.append(listener)

    def write(self, event: str, /, **fields: Any) -> None:
        """Write one event of the schema; its fields, and any further ones, are the keywords."""
        if event not in SCHEMA:
            raise ValueError(f"event {event!r} is not in the schema: {', '.join(SCHEMA)}")
        if missing := missing_fields(event, fields):
            raise ValueError(f"event {event!r} lacks {missing}")
        record = {"event": event, "time": round(self._now(), 3), **_json_value(fields)}
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        with self._lock:
            self._append(line.encode(errors="replace"))  # a path need not be UTF-8
            if (seen := event_of(record)) is not None:
                for listener in tuple(self._subscribers):
                    self._hand(seen, listener)

    def _hand(self, event: Event, listener: Callable[[Event], None]) -> None:
        """Unsubscribe one that fails: a console whose terminal is gone must not end the run."""
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            self._subscribers.remove(listener)
            name = getattr(listener, "__qualname__", repr(listener))
            logger.warning("%s gets no more events, it has failed: %s: %s", name, type(error).__name__, error)

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        """Append a line. A full disk must not end a run: it is logged once, and the line is lost.

        A line after a torn one begins with the line end that the torn one lacks.
        """
        if self._torn:
            line = b"\n" + line
        failure = ""
        try:
            written = os.write(self._file, line)
        except OSError as error:
            written, failure = 0, str(error)
        if written > 0:
            self._torn = line[written - 1 : written] != b"\n"
        if written < len(line):
            failure = failure or f"{written} of {len(line)} bytes were taken"
        if failure and not self._write_failed:
            logger.warning("cannot write %s (%s); events are lost until it can be written", self.path, failure)
        self._write_failed = bool(failure)


class ProgressEvents:
    """Writes the progress of a task: the first time, every few seconds, and at its end."""

    def __init__(self, events: EventLog, *, now: Callable[[], float] = time.monotonic) -> None:
        self._events, self._now = events, now
        self._next_s = -math.inf

    def __call__(self, task: str, done: int, total: int) -> None:
        now_s = self._now()
        if now_s >= self._next_s or done == total:
            self._next_s = now_s + PROGRESS_EVERY_S
            self._events.write("progress", task=task, done=done, total=total)


class EventFollower:
    """Reads a log that may still grow: each `poll` returns the events that were completed since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = -1
        self._partial = b""
        self.skipped = 0
        """Lines so far that could not be read: torn by a kill, damaged, or without a field that readers need."""

    def poll(self) -> list[Event]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    # Another file under the same name (a run started afresh): from its beginning.
                    self._inode, self._offset, self._partial = status.st_ino, 0, b""
                    self.skipped = 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        lines = [line for line in lines if line.strip()]
        events = [event for line in lines if (event := _parse(line)) is not None]
        self.skipped += len(lines) - len(events)
        return events


def read_events(path: Path) -> Iterator[Event]:
    """Every event of a log, in order; a last line without its end and lines that cannot be read are skipped."""
    yield from EventFollower(path).poll()


def stands_at(path: Path) -> StepEvent | None:
    """The last step of a log whose training has not come to its end; None of one that has, and without such a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        event = _parse(line)
        if isinstance(event, RunEndEvent) and event.reason == "finished":
            return None
        if isinstance(event, StepEvent):
            return event
    return None


def _ends_torn(path: Path) -> bool:
    """True if the last writer was killed in the middle of a line."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def _parse(line: bytes) -> Event | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event_of(record)


def _json_value(value: Any) -> Any:
    """Numpy scalars and arrays as Python's, paths as text, numbers that are not finite as null."""
    if hasattr(value, "tolist"):  # numpy itself is not imported: --help should not wait for it
        return _json_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
