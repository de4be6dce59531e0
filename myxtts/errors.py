"""Every error that a user can cause or cure, as one tree.

The command line catches `MyXTTSError` and nothing else: it prints the problem and the hint, and exits
with the class's code. Anything that is not in this tree is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path


class MyXTTSError(Exception):
    """What is wrong, in one line, and what to do about it, in another."""

    exit_code = 1

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling, and worker processes send their errors home.
        return (_rebuild, (type(self), self.problem, self.hint))


def _rebuild(cls: type[MyXTTSError], problem: str, hint: str) -> MyXTTSError:
    return cls(problem, hint=hint)


class UsageError(MyXTTSError):
    """The command line itself is wrong: an unknown command or flag."""

    exit_code = 2


class ConfigError(MyXTTSError):
    """A setting has a value that it cannot have, alone or beside another one."""


class DeviceError(MyXTTSError):
    """The devices that were asked for cannot be had."""


class DataError(MyXTTSError):
    """A corpus, a clip or a prepared shard cannot be used."""


class CheckpointError(MyXTTSError):
    """A checkpoint or a weights file is missing, damaged or of another configuration."""


class DamagedError(CheckpointError):
    """Proven: a file is missing, cannot be parsed or is not what its checksum says. A failed read proves nothing."""


class PipelineError(MyXTTSError):
    """A phase of the pipeline hung or died."""


class TrainingError(MyXTTSError):
    """Training cannot go on: out of memory, or the loss is no longer a number."""


class SynthesisError(MyXTTSError):
    """A text or a reference clip cannot be turned into speech."""


class MetricError(MyXTTSError):
    """A metric of an evaluation cannot be computed."""


class OutputError(MyXTTSError):
    """What was made cannot be written where it should go."""


def how_to_install(extras: str) -> str:
    """The command that adds extras; ours is on no package index, so that its name alone installs nothing."""
    for stamp in Path(sys.prefix).glob(".installed-*"):  # the Makefile's, which names the extras of its environment
        there = stamp.name.removeprefix(".installed-").split("-")
        known = {*there, "cpu"} if "gpu" in there else {*there}
        if missing := [extra for extra in extras.split(",") if extra not in known]:
            return f"in the checkout of MyXTTS: make setup EXTRAS={','.join([*there, *missing])}"
    return f"in the checkout of MyXTTS: pip install -c constraints.txt '.[{extras}]'"


class MissingDependencyError(MyXTTSError):
    """A part of the installation that this command needs is not there."""
