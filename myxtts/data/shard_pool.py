"""Runs shard jobs in worker processes and replaces those that die.

A clip that kills or hangs its decoder twice is refused by name, and its job is run again without it in a new process.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from myxtts.data.shard_jobs import ShardJob
from myxtts.data.shards import ShardWriteError
from myxtts.errors import DataError

CLIP_TIMEOUT_SECONDS = 120.0
"""Clips within the duration limit take less than a second; one that takes minutes hangs its decoder."""
_TRIES = 2
_IDLE_ENDS_WITHIN_S = 3.0
"""How long an idle worker may take to end once its input is closed; one that takes longer is not idle."""


class WorkerDiedError(Exception):
    """The process ended, or was ended, in the middle of a clip (or, with an empty id, before any)."""

    def __init__(self, clip_id: str, how: str) -> None:
        super().__init__(how)
        self.clip_id = clip_id
        self.how = how


class ShardWorker:
    """One worker process; `run` has it run a job and reports each clip."""

    def __init__(self, setup: dict[str, Any], log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._log = log
        with log.open("ab") as errors:
            # A session of its own: Ctrl-C reaches the parent only, which then ends the workers.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "myxtts.data.shard_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._pending = b""
        self._send(setup)

    def run(self, job: ShardJob, skip: dict[str, str], on_clip: Callable[[bool], None], timeout_seconds: float) -> None:
        self._send({"job": job.to_json(), "skip": skip})
        clip_id = ""
        while True:
            answer = self._receive(clip_id, timeout_seconds)
            if "begin" in answer:
                clip_id = answer["begin"]
            elif "end" in answer:
                on_clip(answer["end"])
            elif "failed" in answer:
                raise ShardWriteError(answer["failed"])
            elif "problem" in answer:
                raise DataError(answer["problem"], hint=answer["hint"])
            else:
                return

    def close(self) -> None:
        """End it: idle, by itself, for then it removes its copy of espeak's library; else by force."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(_IDLE_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "nothing in its log"

    def _send(self, message: dict[str, Any]) -> None:
        try:
            _pipe(self._process.stdin).write(json.dumps(message).encode() + b"\n")
            _pipe(self._process.stdin).flush()
        except BrokenPipeError as error:
            raise WorkerDiedError("", self._ending()) from error

    def _receive(self, clip_id: str, timeout_seconds: float) -> dict[str, Any]:
        descriptor = _pipe(self._process.stdout).fileno()
        while b"\n" not in self._pending:
            if not select.select([descriptor], [], [], timeout_seconds)[0]:
                self._process.kill()
                raise WorkerDiedError(clip_id, f"took longer than {timeout_seconds:g} s to decode")
            received = os.read(descriptor, 1 << 16)
            if not received:
                raise WorkerDiedError(clip_id, self._ending())
            self._pending += received
        line, self._pending = self._pending.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ending(self) -> str:
        code = self._process.wait()
        return f"ended its decoder ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # both were asked for in __init__
    return pipe


def run_jobs(
    jobs: list[ShardJob],
    setup: dict[str, Any],
    *,
    workers: int,
    on_clip: Callable[[bool], None],
    timeout_seconds: float = CLIP_TIMEOUT_SECONDS,
) -> None:
    """Run all jobs; the first failure to write stops the others and is raised, and finished shards are kept."""
    waiting: queue.SimpleQueue[ShardJob] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    failures: list[BaseException] = []
    stop = threading.Event()
    lock = threading.Lock()

    def report(refused: bool) -> None:
        with lock:
            on_clip(refused)

    def work(number: int) -> None:
        log = Path(setup["folder"]) / f"worker-{number}.log"
        try:
            _WorkerThread(setup, log, report, stop, timeout_seconds).run_all(waiting)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the caller's thread raises it
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    finally:
        stop.set()
    if failures:
        raise failures[0]


class _Stopped(Exception):  # noqa: N818 - not an error: how a stop reaches a thread in the middle of a job
    """Another thread failed."""


class _WorkerThread:
    """Runs jobs in one worker process at a time and starts another when it dies."""

    def __init__(
        self,
        setup: dict[str, Any],
        log: Path,
        on_clip: Callable[[bool], None],
        stop: threading.Event,
        timeout_seconds: float,
    ) -> None:
        self._setup, self._log, self._on_clip = setup, log, on_clip
        self._stop, self._timeout_seconds = stop, timeout_seconds
        self._worker = ShardWorker(setup, log)

    def run_all(self, waiting: queue.SimpleQueue[ShardJob]) -> None:
        """Run jobs until none is left or another thread failed."""
        try:
            while not self._stop.is_set():
                self._run(waiting.get_nowait())
        except (queue.Empty, _Stopped):
            return
        finally:
            self._worker.close()

    def _run(self, job: ShardJob) -> None:
        crashes: dict[str, list[str]] = {}
        reported = 0
        while True:
            skip = {clip: f"the clip {hows[-1]}" for clip, hows in crashes.items() if len(hows) >= _TRIES}
            seen = 0

            def on_clip(refused: bool) -> None:
                nonlocal seen, reported
                if self._stop.is_set():
                    raise _Stopped
                seen += 1
                if seen > reported:  # clips before a crash were counted the first time
                    reported = seen
                    self._on_clip(refused)

            try:
                self._worker.run(job, skip, on_clip, self._timeout_seconds)
                return
            except WorkerDiedError as death:
                hows = crashes.setdefault(death.clip_id, [])
                hows.append(death.how)
                if not death.clip_id and len(hows) >= _TRIES:
                    raise DataError(
                        f"worker processes of prepare do not start: {self._worker.log_tail()}",
                        hint="run with --workers 1 to see the error itself",
                    ) from death
                self._worker.close()
                self._worker = ShardWorker(self._setup, self._log)
