"""Programs of the user's own: a trainer does what its configuration asks, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import run_program
from tests.small_model import SIZES


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
    assert "token_corruption: 0.1 in the run, 0.5 now" in seen["other"]
    assert "does not exist" in seen["nowhere"]


def test_settings_of_a_yaml_file_reach_the_optimiser(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    sizes = "".join(f"{name}: {value}\n" for name, value in SIZES.items())
    optimiser = (
        "learning_rate: 0.5\nwarmup_steps: 0\nbeta_1: 0.7\nbeta_2: 0.95\nema: 0.9\nfinal_learning_rate_share: 0.5"
    )
    path.write_text(f"model_size: tiny\n{sizes}{optimiser}\n", encoding="utf-8")

    seen = json.loads(run_program("own_programs", "optimiser_of", str(path)).splitlines()[-1])

    rate, beta_1, beta_2, fresh = seen["first"]
    assert (rate, beta_1, beta_2) == pytest.approx((0.5, 0.7, 0.95))
    assert fresh == pytest.approx(0.9), "of an average that has seen one step a tenth is kept"
    assert seen["last"][0] == pytest.approx(0.25)
    assert seen["last"][3] == pytest.approx(0.1)
    assert seen["copies"] == [3, 2], "moments, squares and averages; no averages by default at this size"


@pytest.mark.slow
def test_the_python_of_the_readme_speaks_clones_and_streams(tmp_path: Path) -> None:
    output = run_program("readme_python", str(tmp_path), fresh=True)

    assert "WordTiming(word='Hello'" in output
    assert (tmp_path / "hello.wav").stat().st_size > 1000
    assert (tmp_path / "me.wav").stat().st_size > 1000
