"""The life of a run, for `tests/integration/test_run_lifecycle.py`: what each of its deaths leaves, as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from typing import Any

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
from myxtts.training import loop
from myxtts.training import run as runs
from myxtts.training.checkpoint import Checkpoint, load_latest, save_checkpoint
from myxtts.training.run_folder import RunFolder
from myxtts.training.stages import CODEC
from tests.small_model import SIZES


def main(corpus: str, out: str) -> None:
    recipes: Any = CODEC.recipes
    recipes["tiny"] = dataclasses.replace(CODEC.recipes["tiny"], ema=0.5)
    stages: list[Any] = []
    begin = loop.StageLoop.__init__

    def kept(self: Any, *arguments: Any, **options: Any) -> Any:
        stages.append(self)
        begin(self, *arguments, **options)

    loop.StageLoop.__init__ = kept  # type: ignore[method-assign]

    # One model for all runs, which has forgotten the last one when it starts: building it is most of a start's time.
    trainers: list[Any] = []
    build = runs.TrainingRun._trainer

    def built(self: Any) -> Any:
        if not trainers:
            trainers.append(build(self))
        else:
            for weight in trainers[0].model.dvae.weights:
                weight.assign(np.zeros(weight.shape))
        trainers[0].config = self.config
        return trainers[0]

    runs.TrainingRun._trainer = built  # type: ignore[method-assign]

    folder = RunFolder(out + "/run")
    said: dict[str, Any] = {}

    def train(name: Any, **settings: Any) -> Any:
        # Validated with the folder that is learnt, as the oldest guides have it: clips of it are held out.
        config = XTTSConfig(
            model_size="tiny",
            train_data=corpus,
            val_data=corpus,
            run_dir=str(folder.path),
            cache_dir=out + "/cache",
            text_frontend="characters",
            batch_size=2,
            log_every=1,
            samples=0,
            learning_rate=0.01,
            ctc_loss_weight=0.0,
            alignment_weight=0.0,
            **SIZES,
            **settings,
        )
        plan = plan_devices(DeviceRequest.from_config(config), find_inventory(0))
        try:
            runs.run_training(config, plan, fresh=False, live_console=False)
        except (CheckpointError, OutputError) as error:
            said[name] = [error.problem, error.hint]

    def same(arrays: Any, others: Any) -> Any:
        return all(np.array_equal(value, others[name]) for name, value in arrays.items())

    def learnt() -> Any:
        return {weight.path: weight.numpy() for weight in stages[-1].trainer.model.dvae.weights}

    # A codec with averages, to its end.
    train("codec", stage="codec", max_steps=3)
    voice = read_arrays(folder.voice)
    saved = load_latest(folder.checkpoints("codec"))
    assert saved is not None
    raw = [value for name, value in saved.arrays.items() if name.startswith("model/")]
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
    full = f".config.yaml.{os.getpid()}.part"
    (folder.path / full).symlink_to("/dev/full")
    train("config_on_full_disk", stage="codec", max_steps=3)
    (folder.voice / "manifest.json").unlink()
    (folder.voice / full).symlink_to("/dev/full")
    train("voice_on_full_disk", stage="codec", max_steps=3)
    train("after_full_disk", stage="codec", max_steps=3)

    # A GPT has learnt from that codec, with the vocabulary of another corpus.
    config = stages[-1].config
    state = {"total_steps": 2, "config": as_plain_values(config), "vocabulary": "of another corpus"}
    save_checkpoint(folder.checkpoints("gpt"), Checkpoint(2, {"weight": np.zeros(1, np.float32)}, state))
    train("earlier_stage", stage="codec", max_steps=5)
    said["earlier_stage_left"] = same(voice, read_arrays(folder.voice))
    train("gpt_checkpoint", stage="gpt", max_steps=2)
    other = train_tokenizer("characters", [("another letter: \u00e9", "en")])
    manifest = VoiceManifest(parts=("dvae", "conditioning", "gpt"), trained_to=("gpt", 2))
    save_voice(folder.voice, stages[-1].trainer.model, manifest, config, other)
    train("gpt_in_voice", stage="decoder", max_steps=1)
    print(json.dumps(said))
