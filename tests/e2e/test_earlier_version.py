"""What version 0.1 wrote is still good: its voices say the same in the same voice, its runs go on to the same losses.

The fixtures were written by 0.1 itself (`tests/fixtures/v0_1`). Its Griffin-Lim began with other phases, so speech is
compared by its mel; another CPU rounds differently, so losses are compared closely.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.audio.mel import DVAE_MEL
from myxtts.audio.numpy_mel import log_mel
from tests.processes import run_forked
from tests.training_processes import ONE_THREAD, losses

EARLIER = Path(__file__).parent.parent / "fixtures" / "v0_1"
TEXT = "The cat saw two red birds."
VARIED = ("--temperature", "3", "--top-k", "0", "--top-p", "1")


@pytest.mark.parametrize("runtime", ["tensorflow", "litert"])
@pytest.mark.parametrize(("run", "options"), [("mel", VARIED), ("stopped", ())])
def test_a_voice_of_the_earlier_version_speaks_the_same_mel(
    run: str, options: tuple[str, ...], runtime: str, tmp_path: Path
) -> None:
    out, voice = tmp_path / "out.wav", tmp_path / run
    shutil.copytree(EARLIER / run, voice)  # it keeps its export beside itself

    spoken = run_forked(
        *("-m", "myxtts", "synth", TEXT, "--voice", str(voice), "--seed", "3", "--out", str(out), *options),
        *("--runtime", runtime),
        **ONE_THREAD,
    )

    assert spoken.returncode == 0, spoken.stderr
    ours, theirs = (
        log_mel(soundfile.read(path, dtype="float32")[0], DVAE_MEL) for path in (out, EARLIER / f"{run}.wav")
    )
    assert len(ours) == len(theirs)
    loud = theirs > theirs.max() - 8
    assert np.abs(ours - theirs)[loud].mean() < 0.45, "two of Griffin-Lim's guesses at one mel are 0.3 apart"


def test_a_run_that_the_earlier_version_stopped_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    shutil.copytree(EARLIER, tmp_path / "v0_1")
    run_dir, corpus = tmp_path / "v0_1" / "stopped", tmp_path / "v0_1" / "corpus"

    resumed = run_forked(
        *("train_main.py", "--config", str(run_dir / "config.yaml"), "--run-dir", str(run_dir)),
        *("--train-data", str(corpus), "--cache-dir", str(tmp_path / "cache")),
        **ONE_THREAD,
    )

    assert resumed.returncode == 0, resumed.stderr
    expected = {int(step): loss for step, loss in json.loads((EARLIER / "stopped.losses.json").read_text()).items()}
    found = losses(run_dir)
    assert {step: max(found[step]) for step in expected} == pytest.approx(expected, rel=1e-3)
