"""The memory estimate: what it adds up, what fits a limit, and the table of the docs."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from myxtts.cli.main import main
from myxtts.cli.memory import estimates, largest_clips, memory_lines
from myxtts.config.config import XTTSConfig
from myxtts.config.parts import DECODERS, Decoder
from myxtts.errors import TrainingError
from myxtts.runtime.inventory import Gpu, Inventory, simulated_inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices
from myxtts.training import stages
from myxtts.training.memory_estimate import (
    largest_batch,
    model_device,
    most_clips,
    refuse_weights_beyond_memory,
)
from myxtts.training.stages import HIFIGAN, stage_named
from tests.processes import ROOT
from tools.memory_table import table

GPUS = Inventory(tuple(Gpu(index=i, name="GPU", memory_mb=12288, compute_capability=(8, 6)) for i in range(4)))


def planned(inventory: Inventory = GPUS, **request: Any) -> DevicePlan:
    return plan_devices(DeviceRequest(**request), inventory)


def test_a_models_memory_is_its_weights_gradients_moments_and_averages_and_grows_with_the_batch() -> None:
    config = XTTSConfig(model_size="normal")
    gpt = stage_named("gpt", config.model)

    small, large = (model_device(config, gpt, largest_batch(config, gpt, clips=clips)) for clips in (4, 8))

    assert small.optimiser == 2 * small.gradients
    assert small.averages == small.gradients, "the recipe of normal averages its weights"
    assert small.weights == large.weights > small.gradients, "all parts of the voice are on the device"
    assert large.activations + large.gradients == pytest.approx(2 * (small.activations + small.gradients))


@pytest.mark.parametrize(
    ("inventory", "request_of", "has"),
    [
        (Inventory(()), {}, "/CPU:0 has"),
        (GPUS, {}, "/GPU:0 has 12.0 GB"),
        (GPUS, {"data_gpu": 0, "model_gpu": 1, "model_memory_mb": 2048, "data_memory_mb": 2048}, "/GPU:1 has 2.0 GB"),
    ],
    ids=["CPU", "GPU", "limit"],
)
def test_a_model_whose_weights_no_device_could_hold_is_refused_before_anything_is_built(
    inventory: Inventory, request_of: dict[str, Any], has: str
) -> None:
    plan = planned(inventory, **request_of)

    refuse_weights_beyond_memory(XTTSConfig(model_size="normal"), plan)
    with pytest.raises(TrainingError, match=re.escape(has)) as refused:
        refuse_weights_beyond_memory(XTTSConfig(model_size="tiny", gpt_width=640_000), plan)
    assert "smaller --model-size" in (refused.value.hint or "")


def test_a_stage_that_declares_no_memory_has_no_estimate_and_ends_no_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither its step nor its part is counted; the stages before it, of a model with that part, are not either."""
    monkeypatch.setitem(DECODERS, "tones", Decoder(name="tones", parts=("tones",)))
    own = dataclasses.replace(HIFIGAN, name="tuning", decoder="tones", learns=("tones",), separable=())
    monkeypatch.setattr(stages, "STAGES", [*stages.STAGES, own])
    config = XTTSConfig(model_size="tiny", decoder="tones", simulate_gpus=2)

    refuse_weights_beyond_memory(config, planned())
    lines = memory_lines(config, planned(), GPUS, "float32")

    assert [line.split()[:3] for line in lines[2:]] == [
        [name, "not", "estimated:"] for name in ("codec", "gpt", "tuning")
    ]
    assert main(["train", "--dry-run", "--model-size", "tiny", "--decoder", "tones"]) == 0
    summary = capsys.readouterr().out.partition("Summary")[2]
    assert re.search(r"parameters: [\d,]+, and those of tones\n", summary)
    assert "memory: not estimated" in summary
    assert main(["train", "--dry-run", "--model-size", "tiny", "--decoder", "tones", "--stage", "tuning"]) == 0


def test_accumulated_gradients_are_held_beside_those_of_the_next_batch() -> None:
    once, twice = (
        model_device(config, spec, largest_batch(config, spec))
        for config in (XTTSConfig(model_size="small"), XTTSConfig(model_size="small", grad_accum=2))
        for spec in [stage_named("gpt", config.model)]
    )

    assert twice.gradients == 2 * once.gradients


def test_replicas_share_a_batch_and_one_device_has_both_roles() -> None:
    config = XTTSConfig(model_size="small")
    spec = stage_named("gpt", config.model)
    batch = largest_batch(config, spec, clips=8)

    dual, hybrid, single = (
        estimates(config, spec, plan, batch, "float32")
        for plan in (planned(data_gpu=0, model_gpu=1), planned(data_gpu=0, model_gpu=(1, 2)), planned())
    )

    taken = [found["/GPU:1"].activations + found["/GPU:1"].gradients for found in (dual, hybrid)]
    assert taken[1] == pytest.approx(taken[0] / 2)
    assert hybrid["/GPU:0"] == dual["/GPU:0"]
    assert single["/GPU:0"].weights == dual["/GPU:1"].weights, "it needs no copies of frozen parts"


@pytest.mark.parametrize("limit_mb", [3000, 6000, 20000])
def test_the_largest_batch_fits_and_one_clip_more_does_not(limit_mb: int) -> None:
    config, plan = XTTSConfig(model_size="normal"), planned(data_gpu=0, model_gpu=1)
    spec = stage_named("gpt", config.model)

    clips = largest_clips(config, spec, plan, {"/GPU:0": None, "/GPU:1": limit_mb}, "float32")

    taken = [
        estimates(config, spec, plan, largest_batch(config, spec, clips=n), "float32")["/GPU:1"].total
        for n in (clips, clips + 1)
    ]
    assert taken[0] <= limit_mb < taken[1]


def test_nothing_fits_where_not_even_one_clip_does() -> None:
    assert most_clips(lambda clips: False) == 0
    assert most_clips(lambda clips: clips <= 7) == 7


def test_what_does_not_fit_is_said_with_the_batch_that_does() -> None:
    config = XTTSConfig(
        model_size="big", data_gpu=0, model_gpu=1, enable_memory_isolation=True, data_gpu_memory=4096,
        model_gpu_memory=8000,
    )  # fmt: skip

    shown = memory_lines(config, plan_devices(DeviceRequest.from_config(config), GPUS), GPUS, "float32")

    (gpt,) = [line for line in shown if line.startswith("   gpt     /GPU:1")]
    assert "DOES NOT FIT in 8,000" in gpt
    assert any(line.startswith("   gpt     no batch fits") for line in shown)
    assert any(line.startswith("   decoder the largest batch that fits: --batch-size ") for line in shown)


def test_without_a_limit_a_gpu_has_what_is_usable_of_it_and_a_simulated_one_no_limit() -> None:
    config = XTTSConfig(model_size="tiny")

    real = memory_lines(config, planned(), GPUS, "float32")
    there = simulated_inventory(2)
    simulated = memory_lines(config, planned(there, data_gpu=0, model_gpu=1), there, "float32")

    assert any("fits in 10,152" in line for line in real)
    assert not any("fit" in line for line in simulated)


def test_the_table_of_the_docs_is_what_the_tool_prints() -> None:
    assert table() in (ROOT / "docs" / "dual-gpu.md").read_text(encoding="utf-8"), "python -m tools.memory_table"
