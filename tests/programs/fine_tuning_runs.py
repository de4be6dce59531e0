"""A run from a voice, stopped and continued, for `tests/integration/test_fine_tuning.py`: its losses as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.data.augmentation import Augmentation
from myxtts.data.batching import batches
from myxtts.data.prepare import prepare
from myxtts.monitoring.events import EventLog
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.voice import build_parts, load_parts, read_voice_config, voice_manifest
from myxtts.text.tokenizer import load_tokenizer
from myxtts.training.initial_voice import resolved_config
from myxtts.training.recipes import recipe_for
from myxtts.training.run import TrainingRun, run_training
from myxtts.training.run_folder import RunFolder
from myxtts.training.stages import GPT
from myxtts.training.stages.gpt import GPTStage


def main(voice: str, corpus: str, out: str) -> None:
    common: dict[str, Any] = {
        "init_from": voice,
        "train_data": corpus,
        "cache_dir": out + "/cache",
        "stage": "gpt",
        "batch_size": 2,
        "max_steps": 3,
        "checkpoint_every": 2,
        "log_every": 1,
        "samples": 0,
        "learning_rate": 1e-3,
        "dropout": 0.0,
    }

    def losses(run: Any) -> Any:
        events = map(json.loads, Path(run, "events.jsonl").read_text().splitlines())
        return [event["loss"] for event in events if event["event"] == "step"]

    def train(run: Any, stop_after: Any = None) -> None:
        config = resolved_config(XTTSConfig(**common, run_dir=run))
        plan = plan_devices(DeviceRequest.from_config(config), find_inventory(0))
        if stop_after is None:
            run_training(config, plan, fresh=False, live_console=False)
            return
        folder = RunFolder(run)
        with folder.lock(), EventLog(folder.events) as events:
            started = TrainingRun(config, plan, folder, events, lambda: len(losses(run)) >= stop_after)
            started.prepare()
            assert not started.run()

    run = out + "/run"
    train(run, stop_after=2)
    shutil.copytree(Path(run, "voice"), Path(out, "halfway"))
    train(run)

    config = resolved_config(XTTSConfig(**common))
    prepared = prepare(corpus, config.data, None, load_tokenizer(Path(voice, "tokenizer.json")))
    clips = prepared.split()[0]
    augmentation = Augmentation(reference_seconds=recipe_for(config, GPT).reference_seconds)
    source = batches(prepared, config=config.data, seed=0, clips=clips, augmentation=augmentation)
    given = [next(source) for _ in range(3)]

    def loss_of(folder: Any, batch: Any) -> Any:
        parts = build_parts(read_voice_config(Path(folder)).model, voice_manifest(Path(folder)).parts)
        load_parts(Path(folder), parts)
        stage = GPTStage(parts.gpt, parts.conditioning, parts.dvae)
        objective = stage.objective(stage.process(batch), seed=None, step=None)
        return sum(float(term.mean) * term.weight for term in objective.terms.values())

    print(
        json.dumps(
            {
                "losses": losses(run),
                "initial": loss_of(voice, given[0]),
                "halfway": loss_of(out + "/halfway", given[2]),
                "from_start": loss_of(voice, given[2]),
            }
        )
    )
