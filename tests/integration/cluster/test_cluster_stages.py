"""Every stage over Ray nodes, in one run, learns what one machine learns.

Minutes each, so not in `make test`: pytest -m cluster -n 0 tests/integration/cluster
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run_forked
from tests.ray_nodes import RayNodes, command, ended_well, nothing_is_left, started
from tests.training_processes import ONE_THREAD, arguments, events

STEPS = ("--max-steps", "10", "--samples", "0")
MIRRORED = ("--multi-gpu", "--simulate-gpus", "2")
"""Dropout is drawn for each model worker, as for each GPU of one machine."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    ray_nodes = RayNodes(2, 2)
    yield ray_nodes
    ray_nodes.close()


@pytest.mark.parametrize(
    ("data_workers", "model_workers", "one_machine", "within"),
    [(2, 1, (), 0.0), (1, 2, MIRRORED, 1e-5), (2, 2, MIRRORED, 1e-5)],
)
def test_all_stages_learn_what_one_machine_learns(
    corpus: Path,
    tmp_path: Path,
    nodes: RayNodes,
    data_workers: int,
    model_workers: int,
    one_machine: tuple[str, ...],
    within: float,
) -> None:
    one, folder = tmp_path / "one", tmp_path / "run"
    result = run_forked(*arguments(corpus, one, *STEPS, *one_machine), **ONE_THREAD)
    assert result.returncode == 0, result.stderr
    workers = ("--data-workers", str(data_workers), "--model-workers", str(model_workers))
    with started(command(corpus, folder, nodes.address, *STEPS, *workers), folder) as driver:
        ended_well(driver, folder, timeout_s=1500)
        nothing_is_left()

    expected, found = losses_of_stages(one), losses_of_stages(folder)
    assert {stage for stage, _ in expected} == {"codec", "gpt", "decoder"}
    assert found.keys() == expected.keys()
    assert {place: loss for place, loss in found.items() if abs(loss - expected[place]) > within} == {}


def losses_of_stages(run_dir: Path) -> dict[tuple[str, int], float]:
    """By stage and step."""
    return {(event["stage"], event["step"]): event["loss"] for event in events(run_dir) if event["event"] == "step"}
