"""A fine-tuning that makes a voice worse, and the same command again; what became of it is printed as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from myxtts.config.config import XTTSConfig
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.training.initial_voice import resolved_config
from myxtts.training.run import run_training


def main(voice: str, corpus: str, out: str) -> None:
    run = Path(out, "run")
    config = resolved_config(
        XTTSConfig(
            init_from=voice,
            train_data=corpus,
            cache_dir=f"{out}/cache",
            run_dir=str(run),
            stage="gpt",
            batch_size=2,
            max_steps=40,
            log_every=1,
            samples=0,
            learning_rate=0.5,
        )
    )
    plan = plan_devices(DeviceRequest.from_config(config), find_inventory(0))
    seen = []
    for _ in range(2):
        code = run_training(config, plan, fresh=False, live_console=False)
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        steps = [event["step"] for event in events if event["event"] == "step"]
        losses = {event["step"]: event["loss"] for event in events if event["event"] == "validation"}
        seen.append({"code": code, "last_step": max(steps), "best": min(losses, key=lambda step: losses[step])})
    print(json.dumps(seen))
