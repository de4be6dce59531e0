"""Dual-GPU placement, read from tensors and variables. Runs under unittest and pytest, without a GPU.

Two logical CPU devices stand for the GPUs, in processes of their own, through the same code that real GPUs take.
"""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.processes import run_script
from tests.small_model import SIZES

TRAINING = """
import json
import numpy as np
from myxtts.config.config import XTTSConfig
from myxtts.training.trainer import XTTSTrainer
from myxtts.utils.commons import early_gpu_configuration, ensure_gpu_placement, get_device_context, setup_gpu_strategy

configured = early_gpu_configuration(data_gpu={data}, model_gpu={model})
config = XTTSConfig(model_size="tiny", data_gpu={data}, model_gpu={model}, max_steps=4, dropout=0.0, **{sizes})
trainer = XTTSTrainer(config, model_device={device!r})
trainer.start_stage("codec")
rng = np.random.default_rng(0)
text, text_lengths = rng.integers(4, 60, (2, 9)).astype("int32"), np.array([9, 5], "int32")
mel, mel_lengths = rng.normal(size=(2, 64, 80)).astype("float32"), np.array([64, 40], "int32")
losses = [trainer.train_step(text, mel, text_lengths, mel_lengths)["loss"] for _ in range(2)]
with get_device_context({data_device!r}):
    import tensorflow as tf
    produced = tf.random.uniform([4])
def short(name): return "/" + name.rsplit("device:", 1)[1]
print(json.dumps(dict(
    configured=configured,
    variables=sorted({{short(v.value.device) for v in trainer.current_stage().trainable_variables}}),
    moments=sorted({{short(v.device) for v in trainer.optimizer.variables}}),
    all_model=sorted({{short(v.value.device) for v in trainer.model.weights}}),
    produced=short(produced.backing_device),
    moved=short(ensure_gpu_placement(produced).backing_device),
    strategy=type(setup_gpu_strategy()).__name__,
    soft=tf.config.get_soft_device_placement(),
    losses=losses,
)))
"""


def placed(data: int, model: int, *, device: str | None, data_device: str, gpus: int) -> dict[str, object]:
    script = TRAINING.format(data=data, model=model, device=device, data_device=data_device, sizes=SIZES)
    result: dict[str, object] = json.loads(run_script(script, MYXTTS_SIMULATE_GPUS=str(gpus)).splitlines()[-1])
    return result


class DualGPUDevicePlacement(unittest.TestCase):
    def test_model_optimiser_and_step_are_on_the_model_device_and_data_work_is_not(self) -> None:
        seen = placed(0, 1, device="/CPU:2", data_device="/CPU:1", gpus=2)

        self.assertTrue(seen["configured"])
        for what in ("variables", "moments", "all_model"):
            self.assertEqual(seen[what], ["/CPU:2"], what)
        self.assertEqual(seen["produced"], "/CPU:1")
        self.assertEqual(seen["moved"], "/CPU:2")
        self.assertEqual(seen["strategy"], "OneDeviceStrategy")
        self.assertFalse(seen["soft"])

    def test_swapped_gpus_put_the_model_on_the_first_visible_device(self) -> None:
        seen = placed(3, 1, device=None, data_device="/CPU:2", gpus=4)

        self.assertEqual(seen["variables"], ["/CPU:1"])
        self.assertEqual(seen["produced"], "/CPU:2")

    def test_a_dual_request_that_cannot_be_met_answers_false_and_says_why(self) -> None:
        output = run_script(
            """
from myxtts.utils.commons import early_gpu_configuration, setup_logging
import sys
sys.stderr = sys.stdout
setup_logging()
print(early_gpu_configuration(data_gpu=0, model_gpu=1), early_gpu_configuration(data_gpu=0, model_gpu=0))
"""
        )

        self.assertIn("needs at least 2 GPUs, found 0 GPUs", output)
        self.assertIn("--simulate-gpus 2", output)
        self.assertTrue(output.strip().endswith("False False"))

    def test_a_program_that_used_tensorflow_first_is_told_to_configure_earlier(self) -> None:
        output = run_script(
            """
import sys, tensorflow as tf
tf.constant(1.0)
from myxtts.utils.commons import early_gpu_configuration, setup_logging
sys.stderr = sys.stdout
setup_logging()
print(early_gpu_configuration(data_gpu=0, model_gpu=1))
""",
            MYXTTS_SIMULATE_GPUS="2",
        )

        self.assertIn("TensorFlow was already initialised by this program", output)
        self.assertIn("False", output)

    def test_strategies_follow_the_documented_table(self) -> None:
        script = """
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.utils.commons import setup_gpu_strategy
gpus = len(find_inventory())
apply_plan(plan_devices(DeviceRequest(), find_inventory()))
for multi in (False, True):
    strategy = setup_gpu_strategy(enable_multi_gpu=multi)
    devices = [] if gpus == 0 else strategy.extended.worker_devices
    print(type(strategy).__name__, strategy.num_replicas_in_sync, devices)
"""
        none, one, two = (run_script(script, MYXTTS_SIMULATE_GPUS=count).splitlines() for count in ("0", "1", "2"))

        self.assertEqual([line.split()[0] for line in none], ["_DefaultDistributionStrategy"] * 2)
        self.assertEqual([line.split()[0] for line in one], ["OneDeviceStrategy"] * 2)
        self.assertEqual([line.split()[:2] for line in two], [["OneDeviceStrategy", "1"], ["MirroredStrategy", "2"]])
        self.assertIn("CPU:1", two[0])


if __name__ == "__main__":
    unittest.main()
