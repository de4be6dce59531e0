"""The intelligent GPU pipeline's settings, modes and behaviour. Runs under unittest, pytest and by itself."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from myxtts.config.config import DataConfig, XTTSConfig
from myxtts.errors import ConfigError
from myxtts.runtime.inventory import simulated_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from tests.processes import run_program


class IntelligentGPUPipeline(unittest.TestCase):
    def test_dataconfig_multi_gpu_mode(self) -> None:
        data = DataConfig(data_gpu=0, model_gpu=1, buffer_size=25, model_start_delay=5.0)

        self.assertEqual((data.data_gpu, data.model_gpu, data.buffer_size, data.model_start_delay), (0, 1, 25, 5.0))

    def test_dataconfig_defaults(self) -> None:
        data = XTTSConfig().data

        self.assertEqual(
            (data.data_gpu, data.model_gpu, data.buffer_size, data.model_start_delay), (None, None, 50, 2.0)
        )

    def test_gpu_mode_detection(self) -> None:
        modes = {
            "cpu": (0, {}),
            "single": (1, {}),
            "dual": (2, {"data_gpu": 0, "model_gpu": 1}),
            "mirrored": (2, {"multi_gpu": True}),
            "hybrid": (3, {"data_gpu": 0, "model_gpu": "1,2"}),
        }
        for mode, (gpus, flat) in modes.items():
            with self.subTest(mode):
                request = DeviceRequest.from_config(XTTSConfig(**flat))
                self.assertEqual(plan_devices(request, simulated_inventory(gpus)).mode, mode)

    def test_buffer_size_validation(self) -> None:
        for wrong in (0, -5):
            with self.subTest(wrong), self.assertRaises(ConfigError) as error:
                DataConfig(buffer_size=wrong)
            self.assertIn(f"--buffer-size is {wrong}", error.exception.problem)

    def test_start_delay_validation(self) -> None:
        with self.assertRaises(ConfigError) as error:
            DataConfig(model_start_delay=-1.0)
        self.assertIn("--model-start-delay is -1.0", error.exception.problem)

    def test_fifty_pipelined_steps_equal_fifty_sequential_ones_bit_for_bit(self) -> None:
        output = run_program("placement", "overlapped_and_one_by_one")

        self.assertEqual(output.split(), ["True", "50"])


if __name__ == "__main__":
    unittest.main()
