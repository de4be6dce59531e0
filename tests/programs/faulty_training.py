"""`myxtts train` with something wrong around it or within it; the arguments are its flags."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from myxtts.cli.main import main as myxtts
from myxtts.errors import DataError
from myxtts.training.stages.codec import CodecStage


def train(*flags: str) -> None:
    raise SystemExit(myxtts(["train", *flags]))


def with_output_that_nobody_reads(*flags: str) -> None:
    reader, writer = os.pipe()
    sys.stdout, sys.stderr = os.fdopen(writer, "w"), os.fdopen(os.dup(writer), "w")
    os.close(reader)
    train(*flags)


def _before_each_batch(happens: Callable[[int], None]) -> None:
    """Something happens before the producer's work on every batch, which are counted from 1."""
    healthy, made = CodecStage.process, []

    def process(stage: CodecStage, host_batch: Mapping[str, Any]) -> Any:
        made.append(1)
        happens(len(made))
        return healthy(stage, host_batch)

    CodecStage.process = process  # type: ignore[assignment, method-assign]


def with_a_sick_producer(*flags: str) -> None:
    """It leaks 1 MB a batch, and after 175 of them is slow."""
    leaked = []

    def leak(number: int) -> None:
        leaked.append(np.ones(2**20, np.uint8))
        if number > 175:
            time.sleep(0.4)

    _before_each_batch(leak)
    train(*flags)


def with_a_producer_that_fails(*flags: str) -> None:
    def fail(number: int) -> None:
        if number > 16:
            raise DataError("the disk is gone", hint="bring it back")

    _before_each_batch(fail)
    train(*flags)


def one_after_another(commands: str) -> None:
    """Several trainings in one process; `commands` are their flags as JSON."""
    for flags in json.loads(commands):
        assert myxtts(["train", *flags]) == 0


QUESTIONS: dict[str, Callable[..., None]] = {
    question.__name__: question
    for question in (
        *(with_output_that_nobody_reads, with_a_sick_producer, with_a_producer_that_fails, one_after_another),
    )
}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
