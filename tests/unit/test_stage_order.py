"""Which stage may learn now: on ground that is laid to its end, and that nobody shifts afterwards."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from myxtts.config.model import ModelConfig
from myxtts.config.training import Stage
from myxtts.errors import CheckpointError
from myxtts.models.weights import save_arrays
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.training.checkpoint import Checkpoint, save_checkpoint
from myxtts.training.run_folder import RunFolder
from myxtts.training.stage_order import (
    Trained,
    published,
    refuse_if_later_stage_learnt,
    refuse_without_checkpoints,
    refuse_without_earlier_stages,
)
from myxtts.training.stages import CODEC, GPT

MODEL = ModelConfig(model_size="tiny")
ARRAYS = {"weight": np.zeros(3, np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def trained(folder: RunFolder, stage: Stage, step: int, total_steps: int, *, in_voice: int | None = None) -> None:
    save_checkpoint(folder.checkpoints(stage), Checkpoint(step, ARRAYS, {"total_steps": total_steps}))
    manifest = VoiceManifest(trained_to=(stage, step if in_voice is None else in_voice))
    save_arrays(folder.voice, ARRAYS, manifest.to_metadata())


def test_a_stage_may_begin_once_the_one_before_it_is_done_whatever_the_steps_of_now(folder: RunFolder) -> None:
    trained(folder, "codec", 3000, 3000)

    refuse_without_earlier_stages(GPT, MODEL, folder, fresh=False)


def test_a_stage_does_not_begin_on_one_that_stopped_halfway(folder: RunFolder) -> None:
    trained(folder, "codec", 1200, 3000)

    with pytest.raises(CheckpointError, match="needs stage codec, which stopped at step 1200 of 3000") as caught:
        refuse_without_earlier_stages(GPT, MODEL, folder, fresh=False)

    assert "--stage codec first" in caught.value.hint


def test_a_stage_that_has_begun_on_such_a_one_goes_on(folder: RunFolder) -> None:
    """A run of an earlier version: its codec may not train on, so the way out must be open."""
    trained(folder, "codec", 1200, 3000)
    trained(folder, "gpt", 10, 6000)

    refuse_without_earlier_stages(GPT, MODEL, folder, fresh=False)


def test_a_stage_does_not_begin_on_a_voice_older_than_the_last_checkpoint(folder: RunFolder) -> None:
    trained(folder, "codec", 3000, 3000, in_voice=2500)

    with pytest.raises(CheckpointError, match="what stage codec learnt to step 3000") as caught:
        refuse_without_earlier_stages(GPT, MODEL, folder, fresh=False)

    assert "--stage codec first" in caught.value.hint


@pytest.mark.parametrize("fresh", [True, False])
def test_a_stage_without_any_ground_is_refused(folder: RunFolder, fresh: bool) -> None:
    if fresh:
        trained(folder, "codec", 3000, 3000)

    with pytest.raises(CheckpointError, match="stage gpt needs stage codec, which this run has not trained"):
        refuse_without_earlier_stages(GPT, MODEL, folder, fresh=fresh)


def test_a_stage_may_go_on_until_a_later_one_has_learnt_from_it(folder: RunFolder) -> None:
    refuse_if_later_stage_learnt(CODEC, MODEL, 3000, 5000, folder)
    trained(folder, "gpt", 10, 6000)

    with pytest.raises(CheckpointError, match="codec is at step 3000 of 5000, and stage gpt has learnt") as caught:
        refuse_if_later_stage_learnt(CODEC, MODEL, 3000, 5000, folder)

    assert "--stage gpt trains that one on" in caught.value.hint
    assert "--fresh" in caught.value.hint
    refuse_if_later_stage_learnt(GPT, MODEL, 10, 6000, folder)


def test_a_voice_says_how_far_its_weights_have_come() -> None:
    codec, gpt = Trained.to("codec", 3000), Trained.to("gpt", 100)
    assert codec < gpt < Trained.to("gpt", 101)

    assert published(VoiceManifest()) < codec
    assert published(VoiceManifest(trained_to=("gpt", 100), parts=("dvae", "conditioning", "gpt"))) == gpt
    # A folder of an earlier version is taken for whole; one that the run started from has learnt nothing here.
    assert published(VoiceManifest(parts=("dvae", "conditioning", "gpt"))) == Trained.to("gpt", math.inf)
    assert published(VoiceManifest(parts=("dvae", "conditioning", "gpt")), inherited=("gpt",)) < codec


def test_a_voice_of_a_stage_that_is_not_known_is_refused() -> None:
    with pytest.raises(CheckpointError, match="stage 'polish', which this version does not know"):
        published(VoiceManifest(trained_to=("polish", 3)))


def test_a_voice_whose_checkpoints_are_elsewhere_is_not_begun_anew(folder: RunFolder, tmp_path: Path) -> None:
    trained(folder, "codec", 3000, 3000)
    trained(folder, "gpt", 1200, 6000)
    refuse_without_checkpoints(folder)

    elsewhere = RunFolder(tmp_path, tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"to step 1200 of stage gpt, and .* no checkpoint in .*other/gpt"):
        refuse_without_checkpoints(elsewhere)


def test_going_back_to_an_earlier_checkpoint_is_said_and_done(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """One was damaged and set aside, or removed because its voice had got worse."""
    trained(folder, "codec", 500, 3000, in_voice=1000)

    refuse_without_checkpoints(folder)

    assert "trained to step 1000 of stage codec, the newest checkpoint" in caplog.text


def test_a_folder_without_a_voice_or_with_one_that_was_brought_has_nothing_to_lose(folder: RunFolder) -> None:
    refuse_without_checkpoints(folder)
    save_arrays(folder.voice, ARRAYS, {"parts": ["dvae", "gpt"]})

    refuse_without_checkpoints(folder)
