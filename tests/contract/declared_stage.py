"""A stage of our own, and a process that trains with it: `python -m tests.contract.declared_stage CORPUS OUT STEPS`."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from tests.small_model import SIZES


def build(context: Any) -> Any:
    """The codec stage with one more figure."""
    import tensorflow as tf

    from myxtts.training.stages.codec import CodecStage

    class FlatCodecStage(CodecStage):
        def objective(self, batch: Any, *, seed: Any, step: Any) -> Any:
            objective = super().objective(batch, seed=seed, step=step)
            return objective._replace(figures={"flatness": tf.math.reduce_std(batch["mel"])})

    return FlatCodecStage(context.model.dvae)


def main(corpus: str, out: str, steps: str) -> None:
    from myxtts.monitoring.log import setup_logging
    from myxtts.training import stages
    from myxtts.training.run import run_training

    own = dataclasses.replace(stages.CODEC, module="tests.contract.declared_stage")
    stages.STAGES = (own, *stages.STAGES[1:])
    config = XTTSConfig(
        model_size="tiny",
        train_data=corpus,
        run_dir=f"{out}/run",
        cache_dir=f"{out}/cache",
        text_frontend="characters",
        stage="codec",
        max_steps=int(steps),
        batch_size=2,
        log_every=1,
        samples=0,
        ctc_loss_weight=0.0,
        **SIZES,
    )
    setup_logging()
    run_training(
        config, plan_devices(DeviceRequest.from_config(config), find_inventory(0)), fresh=False, live_console=False
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
