"""A cut network: what is short is waited out, what is long costs the steps since the last checkpoint.

Two nodes in network namespaces, so it needs root: pytest -m cluster -n 0 tests/integration/cluster
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_namespaces import ACROSS, OTHER, TwoNamespaces
from tests.ray_nodes import command, ended_well, nothing_is_left, started, wait_for_step, wait_for_words
from tests.training_processes import events, log_of, losses

CODEC = ("--stage", "codec", "--max-steps", "200", "--samples", "0", "--checkpoint-every", "10")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNamespaces]:
    # The larger node has the model worker, so it is the model worker that is cut off.
    both = TwoNamespaces(tmp_path, cpus=2)
    yield both
    both.close()


def test_a_short_cut_is_waited_out(
    corpus: Path, tmp_path: Path, nodes: TwoNamespaces, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    line = command(corpus, folder, nodes.address, *CODEC, "--data-workers", "2")
    with started(line, folder, inside=nodes.inside(), **ACROSS) as driver:
        wait_for_step(driver, folder, 15)
        nodes.cut()
        wait_for_words(driver, folder, f"model worker 0 on {OTHER} has not answered for")
        nodes.mend()
        ended_well(driver, folder)
        nothing_is_left()

    assert f"model worker 0 on {OTHER} answers again" in log_of(folder).read_text()
    assert losses(folder) == expected


def test_after_a_long_cut_the_run_goes_on_when_the_node_is_back(
    corpus: Path, tmp_path: Path, nodes: TwoNamespaces, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    # One data worker is on the head: a node that has all it needs would go on beyond the cut until its lease ends.
    line = command(corpus, folder, nodes.address, *CODEC, "--data-workers", "2")
    with started(line, folder, inside=nodes.inside(), **ACROSS) as driver:
        wait_for_step(driver, folder, 15)
        nodes.cut()
        wait_for_words(driver, folder, "Waiting for nodes to come back", timeout_s=600)
        nodes.mend()
        nodes.start_other()
        ended_well(driver, folder)
        nothing_is_left()

    starts = [event["step"] for event in events(folder) if event["event"] == "training_start"]
    assert len(starts) == 2
    assert starts[1] > 10
    assert losses(folder) == expected
