"""Programs of the user's own: a trainer does what its configuration asks, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import run_script
from tests.small_model import SIZES

REFUSED = """
import json
import numpy as np
from myxtts.config.config import XTTSConfig
from myxtts.errors import MyXTTSError
from myxtts.models.aligner import CTCNetwork
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.trainer import XTTSTrainer
from myxtts.utils.commons import early_gpu_configuration

early_gpu_configuration()
def refused(make):
    try:
        make()
    except MyXTTSError as error:
        return str(error)
sizes = dict(model_size="tiny", **SIZES)
mirrored = XTTSTrainer(XTTSConfig(multi_gpu=True, grad_accum=4, **sizes))
network = CTCNetwork(7)
network.build()
copied = [
    np.array_equal(replica.numpy(), theirs.numpy())
    for theirs, ours in zip(network.weights, mirrored.on_every_model_device(network).weights, strict=True)
    for replica in ours.value.values
]
print(json.dumps(dict(
    isolated=refused(lambda: MemoryIsolatedDualGPUTrainer(XTTSConfig(**sizes), 0, 1, 1024, 2048)),
    accumulated=refused(lambda: mirrored.train_step(None, None, None, None)),
    mixed=refused(lambda: XTTSTrainer(XTTSConfig(mixed_precision=True, **sizes))),
    replicas=mirrored.strategy.num_replicas_in_sync, copied=[all(copied), len(copied) // len(network.weights)],
)))
"""


def test_what_the_configured_devices_cannot_give_is_refused_and_what_they_can_is_given() -> None:
    output = run_script(f"SIZES = {SIZES!r}\n{REFUSED}", MYXTTS_SIMULATE_GPUS="2")

    seen = json.loads(output.splitlines()[-1])
    assert "a limit of 1024 MB on the data GPU" in seen["isolated"]
    assert "mixed precision is not possible on simulated GPUs" in seen["mixed"]
    assert "grad_accum is 4, and train_step makes a step of one batch" in seen["accumulated"]
    assert seen["replicas"] == 2
    assert seen["copied"] == [True, 2], "an aligner is with each replica"


RESUMED = """
import json, logging
from pathlib import Path
import numpy as np
from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.errors import CheckpointError
from myxtts.models.weights import named, save_arrays
from myxtts.training.checkpoint import Checkpoint, save_checkpoint
from myxtts.training.trainer import XTTSTrainer

run = Path(RUN)
def config(**changes):
    return XTTSConfig(**dict(model_size="tiny", run_dir=str(run), **SIZES) | changes)
def resumed(path, *model, **changes):
    try:
        return XTTSTrainer(config(**changes), *model, resume_checkpoint=str(path))
    except CheckpointError as error:
        return str(error)
def dvae(trainer):
    return [np.asarray(v.numpy()) for v in trainer.model.dvae.weights]

trainer = XTTSTrainer(config())
trainer.start_stage("gpt")
state = dict(stage="gpt", config=as_plain_values(config()), total_steps=70)
path = save_checkpoint(run / "checkpoints" / "gpt", Checkpoint(step=7, arrays=trainer.arrays(), state=state))
without_voice = resumed(path)
save_arrays(run / "voice", {n: v.numpy() for n, v in named(trainer.model.dvae.weights).items()}, {"parts": ["dvae"]})
again = resumed(path)
print(json.dumps(dict(
    without_voice=without_voice,
    given=resumed(path, trainer.model).step_number,
    other=resumed(path, trainer.model, token_corruption=0.5),
    nowhere=resumed(run / "none", trainer.model),
    same=all(np.array_equal(a, b) for a, b in zip(dvae(trainer), dvae(again), strict=True)),
    stands=[again.stage.name, again.step_number, again.recipe.steps],
)))
"""


def test_a_resumed_gpt_stands_on_the_run_s_dvae_or_is_refused(tmp_path: Path) -> None:
    output = run_script(f"SIZES, RUN = {SIZES!r}, {str(tmp_path)!r}\n{RESUMED}")

    seen = json.loads(output.splitlines()[-1])
    assert "stage gpt needs dvae" in seen["without_voice"]
    assert "pass model= with a trained dvae" in seen["without_voice"]
    assert seen["given"] == 7
    assert seen["same"], "the DVAE is the run's, not a random one"
    assert seen["stands"] == ["gpt", 7, 70]
    assert "token_corruption: 0.1 in the run, 0.5 now" in seen["other"]
    assert "does not exist" in seen["nowhere"]


OPTIMISER = """
import json
from myxtts.config.config import XTTSConfig
from myxtts.training.trainer import XTTSTrainer

def optimiser(config):
    trainer = XTTSTrainer(config)
    trainer.start_stage("codec")
    return trainer.optimizer, len(trainer.stage.trainable_variables)

given, variables = optimiser(XTTSConfig.from_yaml(YAML))
default, _ = optimiser(XTTSConfig(model_size="tiny", **SIZES))
print(json.dumps(dict(
    first=given.factors(0).numpy().tolist(), last=given.factors(10**6).numpy().tolist(),
    copies=[len(made.variables) // variables for made in (given, default)],
)))
"""


def test_settings_of_a_yaml_file_reach_the_optimiser(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    sizes = "".join(f"{name}: {value}\n" for name, value in SIZES.items())
    optimiser = (
        "learning_rate: 0.5\nwarmup_steps: 0\nbeta_1: 0.7\nbeta_2: 0.95\nema: 0.9\nfinal_learning_rate_share: 0.5"
    )
    path.write_text(f"model_size: tiny\n{sizes}{optimiser}\n", encoding="utf-8")

    seen = json.loads(run_script(f"SIZES, YAML = {SIZES!r}, {str(path)!r}\n{OPTIMISER}").splitlines()[-1])

    rate, beta_1, beta_2, fresh = seen["first"]
    assert (rate, beta_1, beta_2) == pytest.approx((0.5, 0.7, 0.95))
    assert fresh == pytest.approx(0.9), "of an average that has seen one step a tenth is kept"
    assert seen["last"][0] == pytest.approx(0.25)
    assert seen["last"][3] == pytest.approx(0.1)
    assert seen["copies"] == [3, 2], "moments, squares and averages; no averages by default at this size"
