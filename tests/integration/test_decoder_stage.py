"""Stage decoder in a process of its own: it learns, its parameter groups stay separate, a restored state goes on."""

from __future__ import annotations

import json

import pytest

from tests.processes import run_program


@pytest.mark.slow
def test_the_decoder_learns_a_clip_and_both_parameter_groups_learn_once_the_discriminators_join() -> None:
    seen = json.loads(
        run_program("hifigan_stage", timeout_s=600, few_steps=True, TF_NUM_INTRAOP_THREADS="1").splitlines()[-1]
    )

    assert seen["samples"]
    assert seen["mel"][1] < 0.5 * seen["mel"][0], "HiFi-GAN learns the clip"
    assert seen["norms"] > 0, "every batch norm of the speaker encoder has gathered its statistics"
    spoken, learnt = seen["latents_off"]
    assert spoken < 1e-4 < learnt, "it learns from the latents of speaking, where the text's stop token is seen"
    assert seen["quiet"] < 0.1, "what the batch norms learn from is sound"
    assert seen["shared"] == 0
    assert seen["warm"]["discriminators"] == 0.0
    assert seen["after"]["discriminators"] > 0.9
    assert seen["after"]["generator"] > 0.9
    terms = seen["figures"]
    assert seen["loss"] == pytest.approx(terms["mel"] + terms["adversarial"] + terms["features"], rel=1e-5)
    assert set(seen["held_out"]) == {"loss", "mel", "mel_distance"}
    assert seen["again"] == pytest.approx(seen["straight"], rel=1e-5)
    assert seen["in_checkpoint"]
    assert "discriminators" not in seen["published"]
    assert "stage decoder learns waves" in seen["refused"]
    assert seen["frozen"]["given"] == ["latents", "speaker", "wave"]
    assert seen["frozen"]["speaker"] == pytest.approx(1.0, abs=1e-4)
    assert not seen["frozen"]["learns"]
