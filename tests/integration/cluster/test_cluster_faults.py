"""Whatever is killed, paused or full: a run over Ray nodes goes on to the losses of one machine, and leaves nothing.

Minutes each, so not in `make test`: pytest -m cluster -n 0 tests/integration/cluster
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from myxtts.runtime.workers import tf_config
from tests.processes import ROOT
from tests.ray_nodes import (
    RayNodes,
    command,
    ended_well,
    nothing_is_left,
    started,
    wait_for_step,
    wait_for_words,
    workers,
)
from tests.training_processes import arguments, events, log_of, losses

STEPS = 50
CODEC = ("--stage", "codec", "--max-steps", str(STEPS), "--samples", "0", "--checkpoint-every", "10")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with own_nodes(2, 2) as started:
        yield started


@contextmanager
def own_nodes(*cpus: int, **options: int) -> Iterator[RayNodes]:
    nodes = RayNodes(*cpus, **options)
    try:
        yield nodes
    finally:
        nodes.close()


def assert_equal(found: dict[int, set[float]], expected: dict[int, set[float]], within: float) -> None:
    assert found.keys() == expected.keys()
    for step, (loss,) in expected.items():
        assert all(abs(other - loss) <= within for other in found[step]), (step, loss, found[step])


def of(data_workers: int, model_workers: int) -> tuple[str, ...]:
    return (*CODEC, "--data-workers", str(data_workers), "--model-workers", str(model_workers))


@pytest.mark.parametrize(("data_workers", "model_workers"), [(1, 2), (2, 2)])
def test_model_workers_learn_what_one_machine_learns(
    corpus: Path,
    tmp_path: Path,
    nodes: RayNodes,
    expected: dict[int, set[float]],
    data_workers: int,
    model_workers: int,
) -> None:
    folder = tmp_path / "run"
    with started(command(corpus, folder, nodes.address, *of(data_workers, model_workers)), folder) as driver:
        ended_well(driver, folder)

    assert_equal(losses(folder), expected, 1e-5)
    nothing_is_left()


@pytest.mark.parametrize(("model_workers", "number"), [(1, 0), (2, 0), (2, 1)])
def test_a_killed_model_worker_costs_the_steps_since_the_last_checkpoint(
    corpus: Path, tmp_path: Path, nodes: RayNodes, expected: dict[int, set[float]], model_workers: int, number: int
) -> None:
    folder = tmp_path / "run"
    with started(command(corpus, folder, nodes.address, *of(1, model_workers)), folder) as driver:
        wait_for_step(driver, folder, 15)
        workers("ModelWorkerActor")[number].kill()
        ended_well(driver, folder)

    assert "starting again from the last checkpoint" in log_of(folder).read_text()
    starts = [event["step"] for event in events(folder) if event["event"] == "training_start"]
    assert starts[0] == 1
    assert starts[1] > 10
    assert_equal(losses(folder), expected, 0.0 if model_workers == 1 else 1e-5)
    nothing_is_left()


def test_a_killed_driver_leaves_nothing_and_the_same_command_goes_on(
    corpus: Path, tmp_path: Path, nodes: RayNodes, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    line = command(corpus, folder, nodes.address, *of(2, 1))
    with started(line, folder) as driver:
        wait_for_step(driver, folder, 15)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    nothing_is_left()

    with started(line, folder) as driver:
        ended_well(driver, folder)
    assert_equal(losses(folder), expected, 0.0)


def test_sigterm_drains_saves_and_ends_with_0(
    corpus: Path, tmp_path: Path, nodes: RayNodes, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    line = command(corpus, folder, nodes.address, *of(1, 2))
    with started(line, folder) as driver:
        wait_for_step(driver, folder, 5)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(300) == 0
    assert events(folder)[-1]["reason"] == "interrupted"
    assert "Stopped and saved" in log_of(folder).read_text()
    nothing_is_left()
    reached = max(losses(folder))
    assert reached < STEPS

    with started(line, folder) as driver:
        ended_well(driver, folder)
    starts = [event["step"] for event in events(folder) if event["event"] == "training_start"]
    assert starts == [1, reached + 1]
    assert_equal(losses(folder), expected, 1e-5)


@pytest.mark.parametrize(("kind", "name"), [("DataWorkerActor", "data worker"), ("ModelWorkerActor", "model worker")])
def test_a_paused_worker_is_named_and_goes_on_when_it_wakes(
    corpus: Path, tmp_path: Path, nodes: RayNodes, expected: dict[int, set[float]], kind: str, name: str
) -> None:
    folder = tmp_path / "run"
    with started(command(corpus, folder, nodes.address, *of(1, 1)), folder) as driver:
        wait_for_step(driver, folder, 5)
        paused = workers(kind)[0]
        paused.suspend()
        wait_for_words(driver, folder, rf"{name} 0 on 127.0.0.1 has not answered for")
        paused.resume()
        ended_well(driver, folder)

    assert f"{name} 0 on 127.0.0.1 answers again" in log_of(folder).read_text()
    assert_equal(losses(folder), expected, 0.0)


def test_a_killed_node_is_waited_for_and_the_run_goes_on_when_it_is_back(
    corpus: Path, tmp_path: Path, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    with own_nodes(1, 1) as nodes, started(command(corpus, folder, nodes.address, *of(1, 1)), folder) as driver:
        wait_for_step(driver, folder, 15)
        nodes.kill(nodes.others[0])
        time.sleep(5)
        nodes.add(1)
        ended_well(driver, folder)
        nothing_is_left()

    assert_equal(losses(folder), expected, 0.0)


def test_an_elastic_run_goes_on_with_the_devices_that_are_left(
    corpus: Path, tmp_path: Path, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    with (
        own_nodes(2, 2) as nodes,
        started(command(corpus, folder, nodes.address, *of(2, 2), "--elastic"), folder) as driver,
    ):
        wait_for_step(driver, folder, 15)
        nodes.kill(nodes.others[0])
        ended_well(driver, folder)

    assert_equal(losses(folder), expected, 1e-5)


def test_without_rays_head_the_run_saves_and_says_so_and_goes_on_with_another_head(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    # So many steps that the head's loss comes before their end.
    with (
        own_nodes(2) as nodes,
        started(command(corpus, folder, nodes.address, *of(1, 1), "--max-steps", "100000"), folder) as driver,
    ):
        wait_for_step(driver, folder, 15)
        nodes.kill_head()
        assert driver.wait(300) == 1
        nothing_is_left(timeout_s=180)
    said = log_of(folder).read_text()
    assert f"error: Ray's head at {nodes.address} has not answered" in said
    assert "hint: start it again" in said
    assert events(folder)[-1]["reason"] == "interrupted"

    reached = max(losses(folder))
    with own_nodes(2) as nodes:
        line = command(corpus, folder, nodes.address, *of(1, 1), "--max-steps", str(reached + 5))
        with started(line, folder) as driver:
            ended_well(driver, folder)
    # Its schedule is that of another number of steps, so its losses are compared with themselves: none is missing, and
    # none was learnt twice.
    assert [*losses(folder)] == [*range(1, reached + 6)]
    assert all(len(of_step) == 1 for of_step in losses(folder).values())


def test_a_full_object_store_spills_and_the_losses_stay(
    corpus: Path, tmp_path: Path, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    # Twice what the store holds, kept by another job for as long as the run takes.
    with (
        own_nodes(2, object_store_memory=80 << 20) as nodes,
        subprocess.Popen(
            [sys.executable, "-m", "tests.programs", "store_filler", nodes.address],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as filler,
    ):
        assert filler.stdout is not None
        assert filler.stdout.readline() == b"full\n"
        with started(command(corpus, folder, nodes.address, *of(1, 1)), folder) as driver:
            ended_well(driver, folder)
        assert filler.poll() is None
        filler.communicate()

    assert_equal(losses(folder), expected, 0.0)


def test_processes_that_tf_config_names_learn_together_without_ray(
    corpus: Path, tmp_path: Path, expected: dict[int, set[float]]
) -> None:
    folder = tmp_path / "run"
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with ExitStack() as running:
        both = [
            running.enter_context(
                started(arguments(corpus, folder, *CODEC), folder, TF_CONFIG=tf_config(addresses, number))
            )
            for number in range(2)
        ]
        assert [process.wait(900) for process in both] == [0, 0], log_of(folder).read_text()

    assert [event["event"] for event in events(folder)].count("run_start") == 1
    assert_equal(losses(folder), expected, 1e-5)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
