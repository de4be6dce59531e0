"""A source in a process of its own: equal batches, and every way in which the child can end."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from myxtts.errors import DataError, PipelineError
from myxtts.pipeline import Pipeline, ProcessSource
from tests.processes import ROOT, run


class GrowingSource:
    """Batches that get larger, so that shared memory has to grow; `fault` happens before batch 3."""

    def __init__(self, count: int, fault: str = "") -> None:
        self._count, self._fault, self._position = count, fault, 0

    def __next__(self) -> dict[str, np.ndarray[Any, Any]]:
        if self._position >= self._count:
            raise StopIteration
        if self._position == 3 and self._fault:
            self._break()
        number = self._position
        self._position += 1
        rng = np.random.default_rng(number)
        return {
            "wave": rng.integers(-(2**15), 2**15, (4, 100_000 * (number + 1)), dtype=np.int16),
            "wave_lengths": np.full(4, number, np.int32),
            "empty": np.zeros((0, 3), np.float32),
        }

    def get_state(self) -> dict[str, int]:
        return {"position": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        self._position = state["position"]

    def _break(self) -> None:
        if self._fault == "raise":
            raise DataError("clip 17 has no samples", hint="remove it")
        if self._fault == "unpicklable":
            raise type("LocalError", (Exception,), {})("only here")
        if self._fault == "hang":
            hang_in_the_child()
        if self._fault == "exit":
            os._exit(3)


def hang_in_the_child() -> None:
    time.sleep(60)


def source_of(count: int, fault: str = "", **settings: Any) -> ProcessSource:
    return ProcessSource(functools.partial(GrowingSource, count, fault), **settings)


def shared_segments(pid: int | None = None) -> list[str]:
    return [entry.name for entry in Path("/dev/shm").glob(f"myxtts-{pid or os.getpid()}-*")]


def producers() -> list[psutil.Process]:
    """Our children but Python's tracker and the tests' fork server, which may be here from other tests."""
    others = ("resource_tracker", "tests.fork_server")
    children = psutil.Process().children(recursive=True)
    return [child for child in children if not any(name in " ".join(child.cmdline()) for name in others)]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert shared_segments() == []
    assert producers() == []
    assert [thread for thread in threading.enumerate() if thread.name.startswith("pipeline-")] == []


def test_batches_and_states_equal_those_of_the_source_itself() -> None:
    plain = GrowingSource(6)
    with source_of(6, slots=2) as source:
        assert source.get_state() == {"position": 0}
        for batch in source:
            expected = next(plain)
            assert batch.keys() == expected.keys()
            for name in expected:
                np.testing.assert_array_equal(batch[name], expected[name])
                assert batch[name].dtype == expected[name].dtype
            assert source.get_state() == plain.get_state()
        with pytest.raises(StopIteration):
            next(source)
    with pytest.raises(StopIteration):
        next(plain)


def test_a_restored_state_continues_with_the_very_next_batch() -> None:
    with source_of(6) as source:
        next(source)
        next(source)
        source.set_state({"position": 4})
        assert [int(batch["wave_lengths"][0]) for batch in source] == [4, 5]


def test_an_error_in_the_child_arrives_as_itself_with_the_child_s_traceback() -> None:
    with source_of(6, "raise") as source, pytest.raises(DataError, match="clip 17") as caught:
        list(source)

    assert caught.value.hint == "remove it"
    assert "_break" in str(caught.value.__cause__)


def test_an_error_that_cannot_travel_is_reported_as_text() -> None:
    with source_of(6, "unpicklable") as source, pytest.raises(PipelineError, match="LocalError: only here"):
        list(source)


@pytest.mark.timeout(60)
def test_a_child_killed_by_the_kernel_is_reported_and_not_waited_for() -> None:
    with source_of(50, slots=1) as source:
        next(source)
        assert source.pid is not None
        os.kill(source.pid, signal.SIGKILL)
        with pytest.raises(PipelineError, match="killed by SIGKILL") as caught:
            list(source)

    assert "--batch-size" in caught.value.hint


def test_a_child_that_exits_by_itself_is_reported_with_its_code() -> None:
    with source_of(6, "exit") as source, pytest.raises(PipelineError, match="ended by itself with code 3"):
        list(source)


def test_a_hung_child_is_reported_with_its_own_stack() -> None:
    with source_of(6, "hang", hang_timeout_s=4.0) as source, pytest.raises(PipelineError) as caught:
        list(source)

    assert "has sent nothing for 4 s" in caught.value.problem
    assert "hang_in_the_child" in caught.value.hint


def pipeline_of(source: ProcessSource, **settings: Any) -> Pipeline:
    return Pipeline(
        source, lambda batch: {"n": batch["wave_lengths"]}, data_device=None, model_devices=[None], **settings
    )


def test_a_pipeline_over_a_process_gives_every_batch_in_order() -> None:
    with pipeline_of(source_of(8), buffer_size=3) as pipeline:
        assert [int(batch.tensors["n"][0]) for batch in pipeline] == list(range(8))


def test_a_pipeline_reports_the_killed_producer() -> None:
    source = source_of(200, slots=1)
    with pipeline_of(source, buffer_size=2, host_buffer_size=1) as pipeline:
        next(pipeline)
        assert source.pid is not None
        os.kill(source.pid, signal.SIGKILL)
        with pytest.raises(PipelineError, match="killed by SIGKILL"):
            list(pipeline)


@pytest.mark.timeout(55)  # the child sleeps for 60 s
def test_closing_a_pipeline_ends_a_producer_that_hangs() -> None:
    pipeline = pipeline_of(source_of(6, "hang"), buffer_size=2).start()
    for _ in range(3):
        next(pipeline)
    pipeline.close()


def test_a_program_that_forgets_to_close_its_source_still_ends() -> None:
    done = run("-m", "tests.programs", "sources", "forgotten", timeout_s=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_producer_ends_when_its_parent_is_killed() -> None:
    command = [sys.executable, "-m", "tests.programs", "sources", "waiting_to_be_killed"]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert shared_segments(parent.pid) != []
    parent.kill()
    parent.wait()
    parent.stdout.close()

    child.wait(timeout=20)
    # The resource tracker of the killed process frees its memory a moment later.
    deadline = time.monotonic() + 10
    while shared_segments(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert shared_segments(parent.pid) == []
