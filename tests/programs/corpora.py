"""Preparing in a process that a test can kill, limit and look at."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

from myxtts.data.ljspeech import LJSpeechDataset
from myxtts.data.prepare import prepare
from tests.corpus_maker import settings


def prepared(corpus: str, out: str, file_limit_bytes: str | None = None) -> None:
    if file_limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_limit_bytes), int(file_limit_bytes)))
    prepare(corpus, settings(Path(out)), out=out, workers=2)


def without_tensorflow(corpus: str, cache: str) -> None:
    next(LJSpeechDataset(corpus, settings(Path(cache))).batches())
    assert "tensorflow" not in sys.modules


QUESTIONS: dict[str, Callable[..., None]] = {"prepared": prepared, "without_tensorflow": without_tensorflow}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
