"""Stage decoder of a voice that speaks by Griffin-Lim, in a process of its own."""

from __future__ import annotations

import json

import pytest

from tests.processes import run_program


@pytest.mark.slow
def test_the_mel_decoder_starts_as_the_codec_and_learns_to_read_latents_and_text() -> None:
    seen = json.loads(run_program("mel_decoder_stage", few_steps=True).splitlines()[-1])

    assert seen["as_dvae"] < 1e-4
    assert seen["same"], "which codes are the GPT's own is decided by the batch alone"
    assert 0 < seen["own"][0] < seen["own"][1], "a clip's draw says how many"
    assert seen["losses"][1] < 0.5 * seen["losses"][0]
    assert seen["unchanged"], "everything before it is frozen"
    before, after = seen["told_apart"]
    assert before == [0, 0]
    # Of the text it needs little here: their codes distinguish two clips.
    assert min(after) > 0.001, "it reads latents and text"
    assert seen["resumed"] == pytest.approx(seen["straight"], rel=1e-5)
    assert seen["terms"] == [["l1", "mse"], ["adversarial", "discriminators", "features", "l1", "mse"]]
    assert seen["alone"], "it joins after a third of the steps"
    assert seen["evaluated"] > 0.9
    assert seen["held_out"] == ["l1", "loss", "mse"], "a discriminator's score changes as it learns"
    assert seen["in_checkpoint"]
    assert {"l1", "mse", "loss"} <= set(seen["documented"])
    assert seen["seconds"] == pytest.approx(1.0, abs=0.05)
    assert seen["loud"] > 0
    assert seen["text_matters"] > 0
    assert seen["published"] == ["dvae", "conditioning", "gpt", "mel_decoder"]
