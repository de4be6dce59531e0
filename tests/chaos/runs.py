"""One training run in a folder that faults are let loose on: its processes, what they wrote, and what must hold."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.corpus_maker import make_ljspeech
from tests.fork_server import ForkedProcess, ForkServer
from tests.processes import ONLY_CPU
from tests.shim import Fault, library
from tests.training_processes import ONE_THREAD, arguments

STEPS, CHECKPOINT_EVERY = 4, 2
HANGS_AFTER_S = 900.0
"""Without the time that it waits for a CPU, on a machine that does other things; it takes some seconds of CPU time."""
LOOK_S = 2.0
STAGES = ("codec", "gpt", "decoder")
MODES = {
    "single": (),
    "dual": ("--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1"),
    "hybrid": ("--simulate-gpus", "3", "--data-gpu", "0", "--model-gpu", "1,2"),
}
_LOADED = (
    *("tests.programs.chaos_train", "grain", "myxtts.training.loop", "myxtts.training.samples"),
    *("myxtts.training.stages.codec", "myxtts.training.stages.gpt", "myxtts.training.stages.mel_decoder"),
    *("myxtts.training.memory_isolated_trainer", "myxtts.synthesis.tensorflow_model", "myxtts.training.publishing"),
    *("myxtts.data.clips", "myxtts.config.reference", "myxtts.cli.interrupt", "concurrent.futures.thread"),
    # What these import when they are first used.
    *("tensorboard.summary", "fsspec", "typeguard", "rich._emoji_codes", "encodings.cp437"),
    *("tyro._backends._tyro_backend", "tyro._backends._tyro_help_formatting"),
    *("tyro.constructors._struct_spec_dataclass", "tyro.constructors._struct_spec_pydantic"),
)

Losses = dict[tuple[str, int], float]


class Broken(Exception):  # noqa: N818 - what a trial has found
    """A promise does not hold."""


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    code: int
    said: str
    happened: bool
    """Whether the fault that was waiting for it has come."""

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Arena:
    """Corpus, cache and run of the trial at hand, in one place: prepared corpora are known by their paths.

    `origin` keeps what a trial starts from: for each mode and stage the folder as the stages before left it.
    """

    def __init__(self, folder: Path) -> None:
        self.place, self.origin = folder / "trial", folder / "origin"
        self.corpus, self.cache, self.run = self.place / "corpus", self.place / "cache", self.place / "run"
        self._said, self._counted, self._happened = folder / "said.log", folder / "counted.json", folder / "happened"
        self._server = ForkServer(*_LOADED, LD_PRELOAD=str(library()))

    def command(self, mode: str, stage: str) -> list[str]:
        aligned = () if mode == "single" else ("--alignment-weight", "0")
        flags = arguments(self.corpus, self.run, *MODES[mode], *aligned, "--text-frontend", "characters")[1:]
        every = ("--checkpoint-every", str(CHECKPOINT_EVERY), "--validate-every", "3", "--max-steps", str(STEPS))
        return [*flags, *every, "--samples", "0", "--model-start-delay", "0", "--stage", stage]

    def start(self, command: list[str], fault: Fault | None = None, largest_file_bytes: int = 0) -> ForkedProcess:
        self._happened.unlink(missing_ok=True)
        about = dataclasses.replace(fault or self.watched(), happened=str(self._happened)).to_json()
        words = ["-m", "tests.programs", "chaos_train", about, str(largest_file_bytes), str(self._counted), *command]
        with self._said.open("w", encoding="utf-8") as said:
            return self._server.start(words, {**os.environ, **ONLY_CPU, **ONE_THREAD}, said.fileno(), said.fileno())

    def watched(self) -> Fault:
        """Operations on the run's and the cache's files are counted, nothing else."""
        return Fault(under=(f"{self.run}/", f"{self.cache}/"))

    def ended(self, process: ForkedProcess) -> Ending:
        """Wait for its end; one that does not end is what a trial has found."""
        began = time.monotonic()
        while True:
            try:
                return Ending(process.wait(LOOK_S), self.said(), self._happened.exists())
            except subprocess.TimeoutExpired:
                if own_seconds(process.pid, time.monotonic() - began) < HANGS_AFTER_S:
                    continue
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise Broken(f"hangs: {self.said()[-2000:]}")

    def said(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    def operations(self) -> dict[str, int]:
        """Of the last process that ended by itself."""
        counted: dict[str, int] = json.loads(self._counted.read_text(encoding="utf-8"))
        return counted

    def restore(self, mode: str, stage: str) -> None:
        """The trial's folder as it was before the stage."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.origin / mode / f"before-{stage}", self.place)

    def close(self) -> None:
        self._server.close()


class Reference:
    """The uninterrupted run of a mode, stage after stage: its losses, its last weights, and its operations.

    The operations are counted from the start, from the checkpoint in the middle and from the last one on, so that most
    faults find the operation that they were drawn for.
    """

    def __init__(self, arena: Arena, mode: str, stages: Sequence[str] = STAGES) -> None:
        self.losses: Losses = {}
        self._operations: dict[tuple[str, int], dict[str, int]] = {}
        self.seconds: dict[str, float] = {}
        self._weights: dict[str, bytes] = {}
        for old in (arena.place, arena.origin / mode):  # of a reference that failed
            shutil.rmtree(old, ignore_errors=True)
        make_ljspeech(arena.corpus, 12)
        for stage in stages:
            shutil.copytree(arena.place, arena.origin / mode / f"before-{stage}")
            began = time.monotonic()
            self._count(arena, mode, stage, 0)
            self.seconds[stage] = time.monotonic() - began
            self._weights[stage] = last_weights(arena, stage)
            self._count(arena, mode, stage, STEPS)
            _go_back(arena, mode, stage)
            self._count(arena, mode, stage, CHECKPOINT_EVERY)
            self.check_weights(arena, stage)
        self.losses.update(Ledger(arena.run).read())

    def _count(self, arena: Arena, mode: str, stage: str, newest: int) -> None:
        ending = arena.ended(arena.start(arena.command(mode, stage)))
        if ending.code:
            raise Broken(f"the uninterrupted {mode} {stage} fails: {ending.said[-3000:]}")
        self._operations[stage, newest] = arena.operations()

    def operations(self, stage: str, newest: int) -> dict[str, int]:
        """Of a process that finds this checkpoint as its newest."""
        return self._operations[stage, newest // CHECKPOINT_EVERY * CHECKPOINT_EVERY]

    def check_weights(self, arena: Arena, stage: str) -> None:
        if last_weights(arena, stage) != self._weights[stage]:
            raise Broken(f"the last weights of {stage} are not those of the uninterrupted run")


def _go_back(arena: Arena, mode: str, stage: str) -> None:
    """The run as a kill after its first checkpoint leaves it."""
    shutil.rmtree(_last_checkpoint(arena, stage))
    shutil.rmtree(arena.run / "voice")
    before = arena.origin / mode / f"before-{stage}" / "run" / "voice"
    if before.exists():
        shutil.copytree(before, arena.run / "voice")


def _last_checkpoint(arena: Arena, stage: str) -> Path:
    return arena.run / "checkpoints" / stage / f"step-{STEPS:08d}"


def last_weights(arena: Arena, stage: str) -> bytes:
    return (_last_checkpoint(arena, stage) / "model.safetensors").read_bytes()


class Ledger:
    """The losses in a run's event log, as far as they were not read before."""

    def __init__(self, run: Path) -> None:
        self._path, self._offset = run / "events.jsonl", 0

    def read(self) -> Losses:
        """Of whole lines since the last time."""
        found: Losses = {}
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[self._offset : content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") == "step":
                found.setdefault((event["stage"], event["step"]), event["loss"])
        return found

    def pass_over(self) -> None:
        """What stands there now is not as it was written."""
        self._offset = self._path.stat().st_size if self._path.exists() else 0


def checkpoints(arena: Arena, stage: str) -> list[int]:
    """Steps of the finished checkpoints of a stage."""
    folder = arena.run / "checkpoints" / stage
    return sorted(int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdigit())


def check_said(ending: Ending) -> None:
    """Success, or one error with its hint; never a traceback."""
    if "Traceback (most recent call last)" in ending.said:
        raise Broken(f"a traceback: {ending.said[-3000:]}")
    if ending.code in (0, -signal.SIGKILL):
        return
    errors = [line for line in ending.said.splitlines() if line.startswith("error: ")]
    if ending.code != 1 or len(errors) != 1 or "\n  hint: " not in ending.said:
        raise Broken(f"exit {ending.code} without one clear error: {ending.said[-3000:]}")


def own_seconds(pid: int, elapsed_s: float, proc: Path = Path("/proc")) -> float:
    """Of the time, what no thread of the process spent waiting for a CPU: a starved process does not hang."""
    delays_ns = [0]
    for path in (proc / str(pid) / "task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            delays_ns.append(int(path.read_text(encoding="utf-8").split()[1]))
    return elapsed_s - max(delays_ns) / 1e9


def wait_until(happened: Callable[[], bool], process: ForkedProcess) -> bool:
    """Whether it happened before the process ended, or hung."""
    began = time.monotonic()
    while own_seconds(process.pid, time.monotonic() - began) < HANGS_AFTER_S:
        if happened():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    return False


def is_stopped(process: ForkedProcess) -> bool:
    """By SIGSTOP."""
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] == "T"
