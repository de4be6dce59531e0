"""The report of the GPU list, made here of tests that need no GPU."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.__main__ import read_results, report, run_list
from tests.processes import run

LIST = """
import pytest
pytestmark = pytest.mark.gpu

def test_measures(record_property):
    record_property("copy_s", 0.25)

def test_fails():
    assert 1 == 2, "the copy | waited"

def test_lacks_gpus():
    pytest.skip("needs 4 GPUs, found 2")
"""


def test_the_report_has_every_outcome_with_what_was_seen_and_the_machine(tmp_path: Path) -> None:
    tests, results = tmp_path / "test_list.py", tmp_path / "results.xml"
    tests.write_text(LIST)

    code, printed = run_list(results, 60, str(tests))
    text = report(read_results(results), "GPU 0: one of a kind", 0.5, code, printed)

    assert code == 1
    assert "1 passed, 1 failed, 1 skipped in 0.5 minutes" in text
    assert "| test_measures | passed | 0 | copy_s 0.25 |" in text
    assert "| test_fails | failure |" in text
    assert "the copy \\| waited" in text
    assert "needs 4 GPUs, found 2" in text
    assert "GPU 0: one of a kind" in text
    assert "## End of the output" in text


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    result = run("-m", "tests.gpu", "--report", str(tmp_path / "report.md"))

    assert result.returncode == 1
    assert "no NVIDIA GPU was found" in result.stdout
    assert not (tmp_path / "report.md").exists()
