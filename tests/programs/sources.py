"""Programs that do not close what they opened: a source forgotten, a parent that is killed."""

from __future__ import annotations

import functools
import time

from myxtts.pipeline import ProcessSource
from tests.integration.test_pipeline_processes import GrowingSource


def opened() -> ProcessSource:
    source = ProcessSource(functools.partial(GrowingSource, 1000), slots=2)
    next(source)
    return source


def waiting_to_be_killed() -> None:
    print(opened().pid, flush=True)
    time.sleep(60)


def main(question: str) -> None:
    {"forgotten": opened, "waiting_to_be_killed": waiting_to_be_killed}[question]()
