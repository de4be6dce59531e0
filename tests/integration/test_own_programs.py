"""Programs of the user's own: a trainer does what its configuration asks, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

from tests.processes import run_program


def test_what_the_configured_devices_cannot_give_is_refused_and_what_they_can_is_given() -> None:
    output = run_program("own_programs", "refused_or_given", MYXTTS_SIMULATE_GPUS="2")

    seen = json.loads(output.splitlines()[-1])
    assert "a limit of 1024 MB on the data GPU" in seen["isolated"]
    assert "mixed precision is not possible on simulated GPUs" in seen["mixed"]
    assert "grad_accum is 4, and train_step makes a step of one batch" in seen["accumulated"]
    assert seen["replicas"] == 2
    assert seen["copied"] == [True, 2], "an aligner is with each replica"


def test_a_resumed_gpt_stands_on_the_run_s_dvae_or_is_refused(tmp_path: Path) -> None:
    output = run_program("own_programs", "resumed", str(tmp_path))

    seen = json.loads(output.splitlines()[-1])
    assert "stage gpt needs dvae" in seen["without_voice"]
    assert "pass model= with a trained dvae" in seen["without_voice"]
    assert seen["given"] == 7
    assert seen["same"], "the DVAE is the run's, not a random one"
    assert seen["stands"] == ["gpt", 7, 70]
    assert "code_noise: 0.1 in the run, 0.5 now" in seen["other"]
    assert "does not exist" in seen["nowhere"]
