"""What a program of the user's own may ask of a trainer; the answers are printed as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.errors import CheckpointError, MyXTTSError
from myxtts.models.aligner import CTCNetwork
from myxtts.models.weights import named, save_arrays
from myxtts.models.xtts import XTTS
from myxtts.training.checkpoint import Checkpoint, save_checkpoint
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.trainer import XTTSTrainer
from myxtts.utils.commons import early_gpu_configuration
from tests.small_model import SIZES


def refused_or_given() -> None:
    early_gpu_configuration()

    def refused(make: Callable[[], object]) -> str | None:
        try:
            make()
        except MyXTTSError as error:
            return str(error)
        return None

    sizes = {"model_size": "tiny", **SIZES}
    mirrored = XTTSTrainer(XTTSConfig(multi_gpu=True, grad_accum=4, **sizes))
    network = CTCNetwork(7)
    network.build()
    copied = [
        np.array_equal(replica.numpy(), theirs.numpy())
        for theirs, ours in zip(network.weights, mirrored.on_every_model_device(network).weights, strict=True)
        for replica in ours.value.values
    ]
    answer = {
        "isolated": refused(lambda: MemoryIsolatedDualGPUTrainer(XTTSConfig(**sizes), 0, 1, 1024, 2048)),
        "accumulated": refused(lambda: mirrored.train_step(None, None, None, None)),
        "mixed": refused(lambda: XTTSTrainer(XTTSConfig(mixed_precision=True, **sizes))),
        "replicas": mirrored.strategy.num_replicas_in_sync,
        "copied": [all(copied), len(copied) // len(network.weights)],
    }
    print(json.dumps(answer))


def resumed(folder: str) -> None:
    run = Path(folder)

    def config(**changes: Any) -> XTTSConfig:
        return XTTSConfig(**{"model_size": "tiny", "run_dir": str(run), **SIZES} | changes)

    def trainer_at(path: Path, model: XTTS | None = None, **changes: Any) -> Any:
        try:
            return XTTSTrainer(config(**changes), model, resume_checkpoint=str(path))
        except CheckpointError as error:
            return str(error)

    def dvae(trainer: XTTSTrainer) -> list[Any]:
        return [np.asarray(v.numpy()) for v in trainer.model.dvae.weights]

    trainer = XTTSTrainer(config())
    trainer.start_stage("gpt")
    state = {"stage": "gpt", "config": as_plain_values(config()), "total_steps": 70}
    path = save_checkpoint(run / "checkpoints" / "gpt", Checkpoint(step=7, arrays=trainer.arrays(), state=state))
    without_voice = trainer_at(path)
    weights = {name: weight.numpy() for name, weight in named(trainer.model.dvae.weights).items()}
    save_arrays(run / "voice", weights, {"parts": ["dvae"]})
    again = trainer_at(path)
    answer = {
        "without_voice": without_voice,
        "given": trainer_at(path, trainer.model).step_number,
        "other": trainer_at(path, trainer.model, token_corruption=0.5),
        "nowhere": trainer_at(run / "none", trainer.model),
        "same": all(np.array_equal(a, b) for a, b in zip(dvae(trainer), dvae(again), strict=True)),
        "stands": [again.stage.name, again.step_number, again.recipe.steps],
    }
    print(json.dumps(answer))


def optimiser_of(settings: str) -> None:
    """What a YAML file makes of the optimiser, beside the default one."""

    def optimiser(config: XTTSConfig) -> tuple[Any, int]:
        trainer = XTTSTrainer(config)
        trainer.start_stage("codec")
        return trainer.optimizer, len(trainer.current_stage().trainable_variables)

    given, variables = optimiser(XTTSConfig.from_yaml(settings))
    default, _ = optimiser(XTTSConfig(model_size="tiny", **SIZES))
    answer = {
        "first": given.factors(0).numpy().tolist(),
        "last": given.factors(10**6).numpy().tolist(),
        "copies": [len(made.variables) // variables for made in (given, default)],
    }
    print(json.dumps(answer))


QUESTIONS: dict[str, Callable[..., None]] = {
    question.__name__: question for question in (refused_or_given, resumed, optimiser_of)
}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
