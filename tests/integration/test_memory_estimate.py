"""The memory estimate against steps that are measured on a CPU device."""

from __future__ import annotations

import json

import pytest

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.training.memory_estimate import Batch, model_device
from myxtts.training.stages import stage_named
from tests.processes import run
from tests.programs.memory_peaks import ENVIRONMENT, REFERENCE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "stage", "batch"),
    [("tiny", "codec", "64x4"), ("tiny", "gpt", "8x8"), ("tiny", "decoder", "8x8"), ("small", "gpt", "4x4")],
)
def test_the_estimate_is_within_a_fifth_of_a_measured_step(size: str, stage: Stage, batch: str) -> None:
    config = XTTSConfig(model_size=size)
    clips, seconds = batch.split("x")
    estimated = model_device(
        config,
        stage_named(stage, config.model),
        Batch(clips=int(clips), seconds=float(seconds), reference_seconds=REFERENCE_SECONDS),
    )

    result = run("-m", "tests.programs", "memory_peaks", size, stage, config.model.decoder, batch, **ENVIRONMENT)

    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout.splitlines()[-1])
    kept_mb = measured["variables_mb"]["weights"] + measured["variables_mb"]["optimiser"]
    assert estimated.weights + estimated.optimiser == pytest.approx(kept_mb, abs=4)
    assert estimated.total == pytest.approx(kept_mb + measured[batch]["step_mb"], rel=0.2)
