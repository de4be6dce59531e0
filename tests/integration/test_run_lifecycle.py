"""The life of a run: what a stage leaves to the next, what a kill or a full disk costs, and which way back is shut."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from myxtts.data.prepare import prepare
from tests.corpus_maker import make_ljspeech, settings
from tests.processes import run_script
from tests.small_model import SIZES
from tests.training_processes import arguments, events, log_of, started

LIFE = """
import dataclasses
import json
import os
import shutil
from pathlib import Path
import numpy as np
from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.errors import CheckpointError, OutputError
from myxtts.models.weights import read_arrays
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice import save_voice, voice_manifest
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training import run as runs
from myxtts.training import loop
from myxtts.training.checkpoint import Checkpoint, load_latest, save_checkpoint
from myxtts.training.run_folder import RunFolder
from myxtts.training.stages import CODEC

corpus, out, sizes = {corpus!r}, {out!r}, {sizes!r}
CODEC.recipes["tiny"] = dataclasses.replace(CODEC.recipes["tiny"], ema=0.5)
stages, begin = [], loop.StageLoop.__init__
def kept(self, *arguments):
    stages.append(self)
    begin(self, *arguments)
loop.StageLoop.__init__ = kept

# One model for all runs, which has forgotten the last one when it starts: building it is most of a start's time.
trainers, build = [], runs.TrainingRun._trainer
def built(self):
    if not trainers:
        trainers.append(build(self))
    else:
        for weight in trainers[0].model.dvae.weights:
            weight.assign(np.zeros(weight.shape))
    trainers[0].config = self.config
    return trainers[0]
runs.TrainingRun._trainer = built

folder, said = RunFolder(out + "/run"), {{}}
def train(name, **settings):
    # Validated with the folder that is learnt, as the oldest guides have it: clips of it are held out.
    config = XTTSConfig(model_size="tiny", train_data=corpus, val_data=corpus, run_dir=str(folder.path),
                        cache_dir=out + "/cache",
                        text_frontend="characters", batch_size=2, log_every=1, samples=0, learning_rate=0.01,
                        ctc_loss_weight=0.0, alignment_weight=0.0, **sizes, **settings)
    plan = plan_devices(DeviceRequest.from_config(config), find_inventory(0))
    try:
        runs.run_training(config, plan, fresh=False, live_console=False)
    except (CheckpointError, OutputError) as error:
        said[name] = [error.problem, error.hint]

def same(arrays, others):
    return all(np.array_equal(value, others[name]) for name, value in arrays.items())

def learnt():
    return {{weight.path: weight.numpy() for weight in stages[-1].trainer.model.dvae.weights}}

# A codec with averages, to its end.
train("codec", stage="codec", max_steps=3)
voice = read_arrays(folder.voice)
arrays = load_latest(folder.checkpoints("codec")).arrays
raw = [value for name, value in arrays.items() if name.startswith("model/")]
said["averages_differ"] = not all(any(np.array_equal(value, other) for other in raw) for value in voice.values())
said["left_what_the_voice_has"] = same(voice, learnt())
events = [json.loads(line) for line in folder.events.read_text().splitlines()]
said["evaluated"] = [event["loss"] for event in events if event["event"] == "validation"][-1]
for weight in stages[-1].trainer.model.dvae.weights:
    weight.assign(voice[weight.path])
said["the_voices_loss"] = stages[-1].validate()["loss"]

# A kill between the last checkpoint and the voice.
shutil.rmtree(folder.voice)
train("published_late", stage="codec", max_steps=3)
said["published_late_whole"] = same(voice, read_arrays(folder.voice)) and same(voice, learnt())
said["trained_to"] = voice_manifest(folder.voice).trained_to
said["trained_on"] = voice_manifest(folder.voice).trained_on
said["clip_list"] = stages[-1].data.train.prepared.clip_list
said["learnt_and_held_out"] = [stages[-1].data.train.clips.tolist(), stages[-1].data.held_out.clips.tolist()]
said["val_data"] = XTTSConfig.from_yaml(folder.config).data.val_data

# A full disk, for the run's settings and for the voice's.
full = f".config.yaml.{{os.getpid()}}.part"
(folder.path / full).symlink_to("/dev/full")
train("config_on_full_disk", stage="codec", max_steps=3)
(folder.voice / "manifest.json").unlink()
(folder.voice / full).symlink_to("/dev/full")
train("voice_on_full_disk", stage="codec", max_steps=3)
train("after_full_disk", stage="codec", max_steps=3)

# A GPT has learnt from that codec, with the vocabulary of another corpus.
config = stages[-1].config
state = {{"total_steps": 2, "config": as_plain_values(config), "vocabulary": "of another corpus"}}
save_checkpoint(folder.checkpoints("gpt"), Checkpoint(2, {{"weight": np.zeros(1, np.float32)}}, state))
train("earlier_stage", stage="codec", max_steps=5)
said["earlier_stage_left"] = same(voice, read_arrays(folder.voice))
train("gpt_checkpoint", stage="gpt", max_steps=2)
other = train_tokenizer("characters", [("another letter: \u00e9", "en")])
manifest = VoiceManifest(parts=("dvae", "conditioning", "gpt"), trained_to=("gpt", 2))
save_voice(folder.voice, stages[-1].trainer.model, manifest, config, other)
train("gpt_in_voice", stage="decoder", max_steps=1)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("life")
    corpus = make_ljspeech(folder / "corpus", 10)
    script = LIFE.format(corpus=str(corpus), out=str(folder), sizes=SIZES)
    found: dict[str, Any] = json.loads(run_script(script, few_steps=True).splitlines()[-1])
    return found


def test_a_stage_with_averages_leaves_those_to_the_next_one(said: dict[str, Any]) -> None:
    assert said["averages_differ"]
    assert said["left_what_the_voice_has"]


def test_validation_evaluates_the_weights_that_the_voice_gets(said: dict[str, Any]) -> None:
    assert said["evaluated"] == pytest.approx(said["the_voices_loss"], rel=1e-6)


def test_a_finished_run_whose_voice_was_not_written_writes_it(said: dict[str, Any]) -> None:
    assert "published_late" not in said
    assert said["published_late_whole"]
    assert said["trained_to"] == ["codec", 3]


@pytest.mark.parametrize(("name", "what"), [("config", "config.yaml"), ("voice", "voice")])
def test_a_full_disk_ends_a_run_with_what_it_could_not_write(said: dict[str, Any], name: str, what: str) -> None:
    problem, hint = said[f"{name}_on_full_disk"]
    assert f"{what} cannot be written" in problem
    assert "No space left" in problem
    assert "free disk space" in hint
    assert "after_full_disk" not in said


def test_a_codec_that_a_gpt_has_learnt_from_does_not_train_on(said: dict[str, Any]) -> None:
    problem, hint = said["earlier_stage"]
    assert "stage codec is at step 3 of 5, and stage gpt has learnt from it" in problem
    assert "--stage gpt" in hint
    assert said["earlier_stage_left"]


@pytest.mark.parametrize("weights_from", ["gpt_checkpoint", "gpt_in_voice"])
def test_text_weights_are_not_read_with_another_vocabulary(said: dict[str, Any], weights_from: str) -> None:
    problem, hint = said[weights_from]
    assert "was trained with another vocabulary than this corpus gives" in problem
    assert "--init-from" in hint


def test_sigterm_while_the_corpus_is_prepared_ends_the_run_at_once(tmp_path: Path) -> None:
    corpus, folder = make_ljspeech(tmp_path / "corpus", 2), tmp_path / "run"
    prepared, begun = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        begun.set()
        prepared.wait()

    other = threading.Thread(target=prepare, args=(corpus, settings(tmp_path / "cache"), hold), kwargs={"workers": 1})
    other.start()
    try:
        assert begun.wait(60)
        process = started(arguments(corpus, folder, "--text-frontend", "characters"), folder)
        while "another process is preparing" not in log_of(folder).read_text(encoding="utf-8"):
            assert process.poll() is None, log_of(folder).read_text(encoding="utf-8")
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=60) == 0
        assert events(folder)[-1]["reason"] == "interrupted"
        assert "run the same command again" in log_of(folder).read_text(encoding="utf-8")
    finally:
        prepared.set()
        other.join()


def test_a_run_that_is_validated_with_its_own_folder_holds_out_clips_of_it(said: dict[str, Any]) -> None:
    learnt, held_out = said["learnt_and_held_out"]

    assert len(held_out) == 1
    assert sorted(learnt + held_out) == list(range(10))
    assert said["val_data"] is None, "later commands must know that clips were held out"


def test_a_voice_knows_which_clips_it_was_trained_on(said: dict[str, Any]) -> None:
    assert said["trained_on"] == [said["clip_list"]]
