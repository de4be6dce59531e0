"""Samples while training: of the weights as they are, also after one that failed, and in TensorBoard too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.data.records import ClipRecord
from myxtts.monitoring.events import EventLog
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.training.samples import SampleMaker
from tests.processes import run_program


def test_a_sample_that_failed_leaves_nothing_of_older_weights_behind(tmp_path: Path) -> None:
    run_program("samples", "after_one_that_failed", str(tmp_path))


def test_a_sample_has_audio_and_a_mel_in_tensorboard(tmp_path: Path) -> None:
    run_program("samples", "on_the_board", str(tmp_path))


def test_a_sample_that_fails_in_a_way_nobody_foresaw_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clip = ClipRecord(np.zeros(10, np.int16), np.array([4], np.int32), "a", "?!", "anna", "en")
    broken: Any = object()
    maker = SampleMaker(broken, [clip], [], None, tmp_path / "samples", EventLog(tmp_path / "events.jsonl"), None)

    maker.make("codec", 7, VoiceManifest())

    assert "no sample of codec at step 7: AttributeError" in caplog.text
