"""Every stage, the aligner and speaking under `--mixed-precision`, traced in processes of their own.

A CPU refuses 16 bits, so nothing that computes in them runs here: what a trace finds is operations whose types do not
fit, which would end a run at its first step or its first sample. To a trace bfloat16 is the same.
"""

from __future__ import annotations

import json

from tests.processes import run_program


def test_all_stages_learn_and_speak_in_16_bits_and_decide_codes_speakers_and_samples_in_32() -> None:
    seen = json.loads(run_program("sixteen_bits", "mixed_float16", few_steps=True).splitlines()[-1])

    assert len(seen["aligner"]) == 1
    assert seen["codec"] == [["commitment", "ctc", "l1", "mse"], ["float32"]]
    assert seen["gpt"] == [["accuracy", "alignment", "audio", "text"], ["float32"]]
    assert seen["decoder"] == [["adversarial", "discriminators", "features", "mel"], ["float32"]]
    assert seen["mels"] == [["adversarial", "discriminators", "features", "l1", "mse"], ["float32"]]
    assert seen["made"] == ["float32"] * 3
    narrow = dict.fromkeys(("gpt", "conditioning", "hifigan", "mels"), "float16")
    assert seen["computes"] == {**narrow, **dict.fromkeys(("codes", "samples", "speaker"), "float32")}
