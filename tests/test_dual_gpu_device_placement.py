"""Dual-GPU placement, read from tensors and variables. Runs under unittest and pytest, without a GPU.

Two logical CPU devices stand for the GPUs, in processes of their own, through the same code that real GPUs take.
"""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.processes import run_program


def placed(data: int, model: int, *, device: str | None, data_device: str, gpus: int) -> dict[str, object]:
    arguments = ("dual", str(data), str(model), device or "", data_device)
    printed = run_program("placement", *arguments, MYXTTS_SIMULATE_GPUS=str(gpus))
    result: dict[str, object] = json.loads(printed.splitlines()[-1])
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
        output = run_program("devices", "dual_without_gpus")

        self.assertIn("needs at least 2 GPUs, found 0 GPUs", output)
        self.assertIn("--simulate-gpus 2", output)
        self.assertTrue(output.strip().endswith("False False"))

    def test_a_program_that_used_tensorflow_first_is_told_to_configure_earlier(self) -> None:
        output = run_program("devices", "dual_after_a_tensor", MYXTTS_SIMULATE_GPUS="2")

        self.assertIn("TensorFlow was already initialised by this program", output)
        self.assertIn("False", output)

    def test_strategies_follow_the_documented_table(self) -> None:
        none, one, two = (
            run_program("devices", "strategies", MYXTTS_SIMULATE_GPUS=count).splitlines() for count in ("0", "1", "2")
        )

        self.assertEqual([line.split()[0] for line in none], ["_DefaultDistributionStrategy"] * 2)
        self.assertEqual([line.split()[0] for line in one], ["OneDeviceStrategy"] * 2)
        self.assertEqual([line.split()[:2] for line in two], [["OneDeviceStrategy", "1"], ["MirroredStrategy", "2"]])
        self.assertIn("CPU:1", two[0])


if __name__ == "__main__":
    unittest.main()
