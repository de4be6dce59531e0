"""Memory isolation: limits, figures, leaks and the isolated trainer. Runs under unittest, pytest and by itself."""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from myxtts.runtime.inventory import Gpu, Inventory
from myxtts.runtime.plan import propose_memory_limits
from myxtts.utils.gpu_memory import detect_memory_leak
from tests.processes import run_program


class MemoryIsolation(unittest.TestCase):
    def test_the_isolated_trainer_runs_its_three_phases_on_the_right_devices(self) -> None:
        seen = json.loads(run_program("placement", "isolated").splitlines()[-1])

        self.assertTrue(seen["inherits"])
        self.assertEqual((seen["processed"], seen["moved"]), ("/CPU:1", "/CPU:2"))
        self.assertLess(seen["losses"][-1], seen["losses"][0])
        self.assertEqual((seen["limits"], seen["growth"]), ([4096, 8192], False))
        self.assertFalse(seen["leak"])
        for role in ("data", "model"):
            stats = seen["stats"][role]
            self.assertEqual(stats["source"], "process RSS")
            self.assertGreater(stats["current_mb"], 100)
            self.assertIsNone(stats["share"], "a limit that cannot be enforced has no share")

    def test_isolation_on_a_machine_without_gpus_answers_false_and_says_why(self) -> None:
        output = run_program("devices", "isolation_without_gpus")

        self.assertIn("needs at least 2 GPUs, found 0 GPUs", output)
        self.assertTrue(output.strip().endswith("False"))

    def test_optimal_limits_are_shares_of_what_the_gpus_have(self) -> None:
        rtx_3090 = Inventory(tuple(Gpu(index=i, name="RTX 3090", memory_mb=24576) for i in range(2)))

        self.assertEqual(propose_memory_limits(rtx_3090, 0, 1, data_fraction=0.33, model_fraction=0.67), (8110, 16465))

    def test_a_leak_is_found_with_its_rate_and_steady_memory_is_quiet(self) -> None:
        leaking = detect_memory_leak([(step, 1000.0 + step) for step in range(200)])
        steady = detect_memory_leak([(step, 1000.0 + step % 7) for step in range(2000)])

        self.assertTrue(leaking.leaking)
        self.assertAlmostEqual(leaking.rate_mb_per_1000_steps, 1000, delta=50)
        self.assertFalse(steady.leaking)


if __name__ == "__main__":
    unittest.main()
