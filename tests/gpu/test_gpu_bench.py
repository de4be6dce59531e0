"""What only a machine with a GPU can show: run with `pytest -m gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.gpu
def test_the_gpu_benchmark_measures_both_phases_of_a_training_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "gpu", "--quick", "--size", "tiny", "--json", str(tmp_path / "gpu.json")]
    subprocess.run(command, cwd=ROOT, check=False)

    made = json.loads((tmp_path / "gpu.json").read_text())

    assert made["manifest"]["GPUs"] >= 1
    assert {"process phase", "train phase"} <= {row["name"] for row in made["rows"]}
