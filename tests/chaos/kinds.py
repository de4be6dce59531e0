"""The kinds of faults: each is drawn from a random generator, does its harm to one process, and sees how that ended."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile

from tests.chaos.runs import Arena, Broken, Ending, Reference, checkpoints, is_stopped, wait_until
from tests.shim import Fault


class Trial:
    """What a fault is given: the run, and what is known of it."""

    def __init__(self, arena: Arena, reference: Reference, mode: str, stage: str, drawn: random.Random) -> None:
        self.arena, self.reference, self.mode, self.stage, self.drawn = arena, reference, mode, stage, drawn
        self.command = arena.command(mode, stage)
        self.damaged: list[Path] = []
        """Files that are not as they were written, and were not put back."""
        self.victim = Path()
        """The file that was damaged last."""

    def newest(self) -> int:
        """The step of the newest checkpoint, 0 without one."""
        return max(checkpoints(self.arena, self.stage), default=0)

    def somewhere(self, *operations: str) -> dict[str, int | tuple[str, ...]]:
        """An operation, of these kinds, of as many as the uninterrupted run has from here on."""
        counted = self.reference.operations(self.stage, self.newest())
        return {
            "operations": operations,
            "at": self.drawn.randint(1, max(1, sum(map(counted.__getitem__, operations)))),
        }

    def fault(self, action: str, value: int, *operations: str, for_good: bool = False) -> Fault:
        at = self.somewhere(*operations)
        return Fault(under=self.arena.watched().under, action=action, value=value, for_good=for_good, **at)  # type: ignore[arg-type]

    def run(self, fault: Fault | None = None, largest_file_bytes: int = 0) -> Ending:
        return self.arena.ended(self.arena.start(self.command, fault, largest_file_bytes))


ANY = ("read", "write", "sync", "rename", "open", "remove", "make folder", "cut")


def kill_at_an_operation(trial: Trial) -> Ending:
    return trial.run(trial.fault("signal", signal.SIGKILL, *ANY))


def kill_at_a_change(trial: Trial) -> Ending:
    """Between the operations that make a checkpoint or a voice; there are few of them beside the writes of events."""
    return trial.run(trial.fault("signal", signal.SIGKILL, "sync", "rename", "remove", "make folder", "cut"))


def kill_at_any_moment(trial: Trial) -> Ending:
    process = trial.arena.start(trial.command)
    time.sleep(trial.drawn.uniform(0.05, trial.reference.seconds[trial.stage]))
    process.send_signal(signal.SIGKILL)
    ending = trial.arena.ended(process)
    return replace(ending, happened=ending.was_killed)


def terminate(trial: Trial) -> Ending:
    """It saves what it has learnt, and ends well."""
    ending = trial.run(trial.fault("signal", signal.SIGTERM, *ANY))
    # Before our handler is there, and after it has gone, SIGTERM ends the process as it ends any.
    if ending.code not in (0, -signal.SIGTERM):
        raise Broken(f"exit {ending.code} after SIGTERM: {ending.said[-2000:]}")
    return replace(ending, code=0)


def pause(trial: Trial) -> Ending:
    """SIGSTOP and, after a while, SIGCONT: nothing has happened."""
    process = trial.arena.start(trial.command, trial.fault("signal", signal.SIGSTOP, *ANY))
    if wait_until(lambda: is_stopped(process), process):
        time.sleep(trial.drawn.uniform(0.0, 0.5))
        process.send_signal(signal.SIGCONT)
    ending = trial.arena.ended(process)
    if ending.code:
        raise Broken(f"exit {ending.code} after a pause: {ending.said[-2000:]}")
    return ending


def one_error(trial: Trial) -> Ending:
    operation = trial.drawn.choice([*ANY, "write", "sync", "rename", "read"])
    number = trial.drawn.choice([errno.EIO, errno.EIO, errno.ENOSPC, errno.EACCES])
    return trial.run(trial.fault("error", number, operation))


def errors_for_good(trial: Trial) -> Ending:
    operation = trial.drawn.choice(["write", "sync", "rename", "read", "open"])
    return trial.run(trial.fault("error", trial.drawn.choice([errno.EIO, errno.EROFS]), operation, for_good=True))


def disk_that_fills(trial: Trial) -> Ending:
    """A write takes half, those after it fail."""
    return trial.run(trial.fault("full", errno.ENOSPC, "write", for_good=True))


def files_of_limited_size(trial: Trial) -> Ending:
    """Larger than the file that takes what it says."""
    ending = trial.run(largest_file_bytes=trial.drawn.choice([30_000, 60_000, 120_000, 250_000, 1_000_000]))
    return replace(ending, happened=os.strerror(errno.EFBIG) in ending.said)


def full_file_system(trial: Trial) -> Ending:
    """A real one: the run lies on a tmpfs that has room for a part of what is to be written."""
    run = trial.arena.run
    run.mkdir(exist_ok=True)  # a fault before this one may have come before there was a run
    kept = run.with_name("run.kept")
    run.rename(kept)
    run.mkdir()
    used = sum(path.stat().st_size + 4096 for path in kept.rglob("*"))
    room = trial.drawn.choice([0, 8_192, 65_536, 262_144, 1_048_576])
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={used + room + 65_536}", "tmpfs", str(run)]
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        run.rmdir()
        kept.rename(run)
        return files_of_limited_size(trial)
    try:
        shutil.copytree(kept, run, dirs_exist_ok=True)
        ending = trial.run()
        shutil.rmtree(kept)
        shutil.copytree(run, kept)
    finally:
        subprocess.run(["umount", str(run)], check=True)
        run.rmdir()
        kept.rename(run)
    return replace(ending, happened=os.strerror(errno.ENOSPC) in ending.said)


def clock_jump(trial: Trial) -> Ending:
    years = trial.drawn.choice([-20, -1, 1, 40])
    ending = trial.run(trial.fault("clock", years * 31_556_952, *ANY))
    if ending.code:
        raise Broken(f"exit {ending.code} after the clock jumped {years} years: {ending.said[-2000:]}")
    return ending


def damage(trial: Trial) -> Ending:
    """A file that is read back has another bit, or is cut, or is empty. It is put back where that is an error."""
    files = [path for root in (trial.arena.run, trial.arena.cache) for path in sorted(root.rglob("*"))]
    files = [path for path in files if path.is_file() and path.stat().st_size and "tensorboard" not in path.parts]
    if not files:
        return trial.run()
    victim = trial.victim = trial.drawn.choice(files)
    content = victim.read_bytes()
    status = victim.stat()
    harm = trial.drawn.choice([_flipped, _flipped, _cut, lambda content, drawn: b""])
    victim.write_bytes(harm(content, trial.drawn))
    trial.damaged.append(victim)
    ending = trial.run()
    if ending.code == 1:
        victim.parent.mkdir(parents=True, exist_ok=True)
        victim.write_bytes(content)
        os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
        trial.damaged.remove(victim)
    return replace(ending, happened=True)


def _flipped(content: bytes, drawn: random.Random) -> bytes:
    place = drawn.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << drawn.randrange(8)]) + content[place + 1 :]


def _cut(content: bytes, drawn: random.Random) -> bytes:
    return content[: drawn.randrange(len(content))]


def changed_corpus(trial: Trial) -> Ending:
    """While the run reads it, a clip of the corpus changes, and perhaps another command prepares it anew."""
    corpus, kept = trial.arena.corpus, trial.arena.corpus.with_name("corpus.kept")
    shutil.copytree(corpus, kept)
    process = trial.arena.start(trial.command, trial.fault("signal", signal.SIGSTOP, "read", "write"))
    try:
        if wait_until(lambda: is_stopped(process), process):
            clip = corpus / "wavs" / "clip_3.wav"
            soundfile.write(clip, np.zeros(30_000, np.float32) + 0.1, 22050)
            if trial.drawn.random() < 0.5:
                metadata = corpus / "metadata.csv"
                metadata.write_text(metadata.read_text(encoding="utf-8").replace("cat", "dog"), encoding="utf-8")
            process.send_signal(signal.SIGCONT)
        return trial.arena.ended(process)
    finally:
        shutil.rmtree(corpus)
        kept.rename(corpus)


KINDS: dict[str, tuple[Callable[[Trial], Ending], int]] = {
    kind.__name__: (kind, weight)
    for kind, weight in (
        (kill_at_an_operation, 6),
        (kill_at_a_change, 6),
        (kill_at_any_moment, 3),
        (terminate, 3),
        (pause, 1),
        (one_error, 5),
        (errors_for_good, 2),
        (disk_that_fills, 2),
        (files_of_limited_size, 1),
        (full_file_system, 1),
        (clock_jump, 1),
        (damage, 4),
        (changed_corpus, 1),
    )
}
"""Each with how often it is drawn beside the others."""
