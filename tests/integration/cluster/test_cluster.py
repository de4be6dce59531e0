"""Data workers of a Ray cluster give what one machine gives; what cannot work is refused before anything is written.

One Ray for the module. What takes minutes is in `test_cluster_faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run, run_forked
from tests.ray_nodes import (
    NodeDidNotStartError,
    RayNodes,
    command,
    ended_well,
    nothing_is_left,
    started,
    wait_for_step,
    workers,
)
from tests.training_processes import arguments, losses

CODEC = ("--stage", "codec", "--max-steps", "20", "--samples", "0")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    try:
        ray_nodes = RayNodes(3)
    except NodeDidNotStartError:
        pytest.skip("this machine is too busy for Ray, whose agents must start within 15 seconds")
    yield ray_nodes
    ray_nodes.close()


def test_two_data_workers_one_of_them_killed_give_the_losses_of_one_machine_to_the_bit(
    corpus: Path, tmp_path: Path, nodes: RayNodes, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    with started(command(corpus, folder, nodes.address, *CODEC, "--data-workers", "2"), folder) as driver:
        wait_for_step(driver, folder, 5)
        workers("DataWorkerActor")[0].kill()
        ended_well(driver, folder)

    assert losses(folder) == expected
    nothing_is_left()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--cluster", "127.0.0.1:1"), "no Ray answers at 127.0.0.1:1"),
        (("--cluster", "somewhere"), "--cluster is 'somewhere', must be local, auto or HOST:PORT"),
        (("--cluster", "auto", "--multi-gpu"), "--multi-gpu was given beside --cluster"),
    ],
)
def test_what_cannot_be_joined_is_refused_within_seconds(
    corpus: Path, tmp_path: Path, flags: tuple[str, ...], problem: str
) -> None:
    result = run_forked(*arguments(corpus, tmp_path / "run", *flags, "--dry-run"), RAY_ADDRESS="")

    assert result.returncode == 1
    assert problem in result.stderr
    assert "hint:" in result.stderr
    assert not (tmp_path / "run").exists()


def test_more_workers_than_devices_are_refused_with_both_numbers(corpus: Path, tmp_path: Path, nodes: RayNodes) -> None:
    many = ("--data-workers", "90", "--model-workers", "9", "--dry-run")
    result = run(*command(corpus, tmp_path / "run", nodes.address, *many))

    assert result.returncode == 1
    assert "90 data workers and 9 model workers need 99 devices, and the cluster has" in result.stderr
    assert not (tmp_path / "run").exists()
