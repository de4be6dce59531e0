"""The pipeline's promises, with plain callables and no devices."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import PipelineError
from myxtts.pipeline import BatchSize, DeviceBatch, Pipeline, Producer, SequentialPipeline, split_rows
from myxtts.pipeline.pipeline import PipelineBase
from myxtts.pipeline.telemetry import Telemetry
from tests.unit.test_pipeline_telemetry import Clock


class CountingSource:
    """Batches 0, 1, 2, ... up to `count`; the state is the number of the next one."""

    def __init__(self, count: int, *, before: Callable[[int], None] | None = None) -> None:
        self._count = count
        self._position = 0
        self._before = before

    def __next__(self) -> dict[str, Any]:
        if self._position >= self._count:
            raise StopIteration
        if self._before is not None:
            self._before(self._position)
        self._position += 1
        return {"number": np.full(4, self._position - 1)}

    def get_state(self) -> dict[str, int]:
        return {"position": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        self._position = state["position"]


def double(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {"doubled": batch["number"] * 2}


def pipelined(source: Any, process: Any = double, **settings: Any) -> Pipeline:
    return Pipeline(source, [Producer(process)], model_devices=[None], **settings)


def sequential(source: Any, process: Any = double, **settings: Any) -> SequentialPipeline:
    return SequentialPipeline(source, [Producer(process)], model_devices=[None], **settings)


def contents(pipeline: PipelineBase) -> list[tuple[int, list[int], Mapping[str, Any]]]:
    with pipeline:
        return [(batch.index, batch.tensors["doubled"].tolist(), batch.state) for batch in pipeline]


def pipeline_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pipeline-")]


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    yield
    assert pipeline_threads() == []


def jitter(_: object) -> None:
    time.sleep(random.random() * 0.002)


@pytest.mark.parametrize("buffer_size", [1, 2, 3, 50])
def test_pipelined_batches_equal_sequential_ones_in_order_content_and_state(buffer_size: int) -> None:
    def slow_double(batch: Mapping[str, Any]) -> dict[str, Any]:
        jitter(batch)
        return double(batch)

    expected = contents(sequential(CountingSource(40), host_buffer_size=0))

    assert contents(pipelined(CountingSource(40, before=jitter), slow_double, buffer_size=buffer_size)) == expected
    assert contents(sequential(CountingSource(40), host_buffer_size=3)) == expected
    assert [index for index, _, _ in expected] == list(range(40))


def slow_and_quick(seen: list[list[int]]) -> list[Producer]:
    """Two producers that note their batches; the first takes ten times as long as the second."""

    def producer(number: int, seconds: float) -> Producer:
        def process(batch: Mapping[str, Any]) -> dict[str, Any]:
            seen[number].append(int(batch["number"][0]))
            time.sleep(seconds)
            return double(batch)

        return Producer(process)

    return [producer(0, 0.005), producer(1, 0.0005)]


@pytest.mark.parametrize("buffer_size", [1, 2, 3, 50])
@pytest.mark.parametrize("make", [Pipeline, SequentialPipeline])
def test_two_producers_take_turns_and_give_the_batches_of_one_in_its_order(make: Any, buffer_size: int) -> None:
    seen: list[list[int]] = [[], []]
    pipeline = make(CountingSource(21), slow_and_quick(seen), model_devices=[None], buffer_size=buffer_size)

    assert contents(pipeline) == contents(sequential(CountingSource(21), host_buffer_size=0))
    assert seen == [list(range(0, 21, 2)), list(range(1, 21, 2))]


def test_a_buffer_shared_by_two_producers_holds_no_more_than_its_size() -> None:
    pipeline = Pipeline(CountingSource(40), slow_and_quick([[], []]), model_devices=[None], buffer_size=7)
    with pipeline:
        ready = pipeline.wait_until_ready()
        time.sleep(0.05)
        assert pipeline.depth == pipeline.capacity == ready.capacity == 7
        assert ready.reason == "full"
        assert [batch.index for batch in pipeline] == list(range(40))


def test_an_error_of_the_second_of_two_producers_reaches_the_caller() -> None:
    producers = [Producer(double), Producer(fail_at(5, ValueError("clip 5 is broken")))]
    with (
        Pipeline(CountingSource(10), producers, model_devices=[None]) as pipeline,
        pytest.raises(ValueError, match="clip 5"),
    ):
        list(pipeline)


def test_a_hanging_producer_of_two_is_named() -> None:
    release = threading.Event()

    def hang(batch: Mapping[str, Any]) -> dict[str, Any]:
        if batch["number"][0] > 1:
            release.wait(10)
        return double(batch)

    producers = [Producer(double), Producer(hang)]
    with Pipeline(CountingSource(9), producers, model_devices=[None], hang_timeout_s=0.2) as pipeline:
        with pytest.raises(PipelineError, match=r"the process 2 \(host\) phase has been busy"):
            list(pipeline)
        release.set()


def test_a_run_resumed_from_a_batch_s_state_continues_with_the_very_next_batch() -> None:
    with pipelined(CountingSource(30), buffer_size=8) as pipeline:
        seen = [next(pipeline) for _ in range(7)]
    resumed = CountingSource(30)
    resumed.set_state(seen[-1].state)

    rest = contents(pipelined(resumed, buffer_size=8))

    assert [values for _, values, _ in rest] == [[2 * number] * 4 for number in range(7, 30)]


def test_an_empty_source_ends_at_once_and_stays_ended() -> None:
    with pipelined(CountingSource(0)) as pipeline:
        assert list(pipeline) == []
        with pytest.raises(StopIteration):
            next(pipeline)


def fail_at(number: int, error: BaseException) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        if batch["number"][0] == number:
            raise error
        return double(batch)

    return process


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_an_error_of_the_process_phase_reaches_the_caller_with_its_own_traceback(make: Any) -> None:
    error = ValueError("clip 3 is broken")
    with make(CountingSource(10), fail_at(3, error)) as pipeline, pytest.raises(ValueError, match="clip 3") as caught:
        list(pipeline)

    assert caught.value is error
    assert "process" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert caught.value.__context__ is None


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_an_error_of_the_source_reaches_the_caller(make: Any) -> None:
    def before(number: int) -> None:
        if number == 2:
            raise OSError("the disk is gone")

    with make(CountingSource(10, before=before)) as pipeline, pytest.raises(OSError, match="the disk is gone"):
        list(pipeline)


def test_a_failure_is_raised_ahead_of_batches_that_still_wait() -> None:
    may_fail, failed = threading.Event(), threading.Event()

    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        if batch["number"][0] == 20:
            may_fail.wait(5)
            failed.set()
            raise ValueError("late")
        return double(batch)

    with pipelined(CountingSource(100), process, buffer_size=50) as pipeline:
        next(pipeline)
        may_fail.set()
        assert failed.wait(5)
        time.sleep(0.05)
        with pytest.raises(ValueError, match="late"):
            next(pipeline)


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_a_stop_iteration_in_the_process_phase_is_a_fault_and_not_the_end_of_data(make: Any) -> None:
    with make(CountingSource(5), fail_at(2, StopIteration())) as pipeline, pytest.raises(RuntimeError, match="StopIt"):
        list(pipeline)


def test_a_split_that_returns_too_few_parts_is_refused() -> None:
    pipeline = Pipeline(
        CountingSource(3), [Producer(double)], model_devices=[None, None], split=lambda tensors, parts: [tensors]
    )
    with pipeline, pytest.raises(PipelineError, match="split returned 1 parts for 2"):
        next(pipeline)


def test_several_model_devices_get_their_rows_or_the_whole_batch() -> None:
    def replicas(**settings: Any) -> list[list[int]]:
        source = CountingSource(1)
        with Pipeline(
            source, [Producer(lambda batch: {"x": np.arange(5)})], model_devices=[None, None], **settings
        ) as pipeline:
            return [replica["x"].tolist() for replica in next(pipeline).replicas]

    assert replicas(split=split_rows) == [[0, 1, 2], [3, 4]]
    assert replicas() == [[0, 1, 2, 3, 4]] * 2


def test_tensors_of_a_batch_on_two_devices_are_not_mistaken_for_one() -> None:
    with pytest.raises(PipelineError, match="on 2 devices"):
        _ = DeviceBatch(0, ({}, {}), {}).tensors


@given(rows=st.integers(1, 40), parts=st.integers(1, 8))
def test_split_rows_loses_and_reorders_nothing(rows: int, parts: int) -> None:
    tensors = {"a": np.arange(rows), "b": np.arange(2 * rows).reshape(rows, 2)}
    pieces = split_rows(tensors, parts)

    assert len(pieces) == parts
    if rows < parts:
        assert pieces == [tensors] * parts  # whole to each: the mean over all replicas is the batch's own
        return
    for name, whole in tensors.items():
        np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), whole)
    sizes = [len(piece["a"]) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1


def test_no_more_batches_are_processed_ahead_than_the_buffer_holds() -> None:
    processed: list[int] = []

    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        processed.append(int(batch["number"][0]))
        return double(batch)

    with pipelined(CountingSource(100), process, buffer_size=6, start_delay_s=5.0) as pipeline:
        readiness = pipeline.wait_until_ready()
        time.sleep(0.1)
        assert len(processed) == 6 == readiness.depth == readiness.capacity
        next(pipeline)
        time.sleep(0.1)
        assert len(processed) == 7


def test_warm_start_returns_as_soon_as_the_buffer_is_full() -> None:
    with pipelined(CountingSource(100), buffer_size=5, start_delay_s=60.0) as pipeline:
        readiness = pipeline.wait_until_ready()

    assert readiness.reason == "full"
    assert readiness.waited_s < 30


def test_warm_start_waits_no_longer_than_its_delay() -> None:
    slow = CountingSource(100, before=lambda number: time.sleep(0.05))
    with pipelined(slow, buffer_size=50, start_delay_s=0.2) as pipeline:
        readiness = pipeline.wait_until_ready()

    assert readiness.reason == "delay"
    assert readiness.waited_s >= 0.2
    assert readiness.depth < 50


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_warm_start_returns_when_the_data_end_first(make: Any) -> None:
    with make(CountingSource(3), start_delay_s=60.0) as pipeline:
        readiness = pipeline.wait_until_ready()
        count = sum(1 for _ in pipeline)

    assert (readiness.reason, readiness.depth, count) == ("end of data", 3, 3)


def test_warm_start_raises_what_a_phase_raised() -> None:
    with (
        pipelined(CountingSource(9), fail_at(0, ValueError("first")), start_delay_s=60.0) as pipeline,
        pytest.raises(ValueError, match="first"),
    ):
        pipeline.wait_until_ready()


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_a_hung_source_is_reported_with_the_stack_of_its_thread(make: Any) -> None:
    release = threading.Event()

    def sleeping_reader(number: int) -> None:
        if number == 2:
            release.wait(30)

    with make(CountingSource(9, before=sleeping_reader), hang_timeout_s=0.3) as pipeline:
        with pytest.raises(PipelineError) as caught:
            list(pipeline)
        release.set()

    assert "source phase" in caught.value.problem
    assert "sleeping_reader" in caught.value.hint


def test_a_hung_process_phase_is_blamed_and_not_the_phases_that_wait_for_it() -> None:
    release = threading.Event()

    def stuck(batch: Mapping[str, Any]) -> dict[str, Any]:
        if batch["number"][0]:
            release.wait(30)
        return double(batch)

    with pipelined(CountingSource(9), stuck, hang_timeout_s=0.3) as pipeline:
        next(pipeline)
        with pytest.raises(PipelineError, match="the process phase has been busy") as caught:
            next(pipeline)
        release.set()

    assert "in stuck" in caught.value.hint
    assert "--batch-size" in caught.value.hint


def test_a_first_batch_has_no_limit_and_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def compiles_first(batch: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(1.2 if not batch["number"][0] else 0.0)
        return double(batch)

    assert len(contents(pipelined(CountingSource(3), compiles_first, hang_timeout_s=0.2))) == 3
    assert caplog.text.count("the process phase has been busy with its first batch") == 1
    assert "half an hour" in caplog.text


@pytest.mark.parametrize("model_devices", [[None], [None, None]], ids=["one device", "mirrored"])
def test_data_work_on_a_device_of_the_model_is_no_stall(model_devices: list[None]) -> None:
    clock = Clock()

    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        clock.forward(3.0)
        return double(batch)

    telemetry = Telemetry(data_devices=["host"], model_devices=["host"] * len(model_devices), now=clock)
    with SequentialPipeline(
        CountingSource(4), [Producer(process)], model_devices=model_devices, telemetry=telemetry
    ) as pipeline:
        for _ in pipeline:
            clock.forward(7.0)
        window = telemetry.window()

    assert window.stall_share == 0.0
    assert window.phases["train"].blocked == pytest.approx(0.3)


def test_slow_phases_that_make_progress_are_not_called_hung() -> None:
    def slow(batch: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(1.0)
        return double(batch)

    source = CountingSource(2, before=lambda number: time.sleep(1.0))

    # Each phase stays below the timeout, the wait for the first batch does not.
    assert len(contents(pipelined(source, slow, hang_timeout_s=1.6))) == 2


@pytest.mark.parametrize("make", [pipelined, sequential])
def test_a_process_that_was_stopped_for_ten_minutes_is_not_called_hung(make: Any) -> None:
    """Ctrl-Z and fg: the clocks of the phases have gone on, and nobody has waited."""
    clock = Clock()

    def stopped_while_reading(number: int) -> None:
        if number == 1:
            clock.forward(600.0)
            time.sleep(0.4)

    source = CountingSource(2, before=stopped_while_reading)

    assert len(contents(make(source, telemetry=Telemetry(now=clock), hang_timeout_s=300.0))) == 2


def test_a_consumer_that_raises_leaves_no_thread_and_keeps_its_error() -> None:
    def consume() -> None:
        with pipelined(CountingSource(1000), buffer_size=4) as pipeline:
            for batch in pipeline:
                if batch.index == 3:
                    raise KeyError("consumer")

    with pytest.raises(KeyError, match="consumer"):
        consume()
    assert pipeline_threads() == []


@settings(max_examples=40, deadline=None)
@given(
    taken=st.integers(0, 12),
    pause_ms=st.floats(0, 6),
    buffer_size=st.integers(1, 6),
    host_buffer=st.integers(1, 3),
    failing=st.one_of(st.none(), st.integers(0, 12)),
)
def test_closing_at_any_moment_leaves_no_thread(
    taken: int, pause_ms: float, buffer_size: int, host_buffer: int, failing: int | None
) -> None:
    process = double if failing is None else fail_at(failing, ValueError("injected"))
    source = CountingSource(20, before=jitter)
    with pipelined(source, process, buffer_size=buffer_size, host_buffer_size=host_buffer) as pipeline:
        try:
            for _ in range(taken):
                next(pipeline)
        except ValueError:
            assert failing is not None
        time.sleep(pause_ms / 1000)

    assert pipeline_threads() == []


def test_a_closed_pipeline_says_so() -> None:
    with pipelined(CountingSource(9)) as pipeline:
        next(pipeline)
    pipeline.close()

    with pytest.raises(PipelineError, match="closed"):
        next(pipeline)
    with pytest.raises(PipelineError, match="started once"):
        pipeline.start()


def test_closing_wakes_a_caller_that_waits_on_another_thread() -> None:
    release = threading.Event()
    source = CountingSource(9, before=lambda number: release.wait(30) and None)
    pipeline = pipelined(source).start()
    outcome: list[str] = []

    def consume() -> None:
        try:
            next(pipeline)
        except PipelineError as error:
            outcome.append(error.problem)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(0.05)
    threading.Timer(0.1, release.set).start()
    pipeline.close()
    consumer.join(5)

    assert outcome == ["the pipeline is closed"]


def test_a_source_that_can_be_closed_is_closed_with_the_pipeline() -> None:
    class ClosableSource(CountingSource):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    source = ClosableSource(5)
    with pipelined(source) as pipeline:
        next(pipeline)

    assert source.closed == 1


def test_waiting_batches_are_dropped_when_a_pipeline_closes() -> None:
    import gc
    import weakref

    class Tensor:
        pass

    alive: list[weakref.ref[Tensor]] = []

    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        tensor = Tensor()
        alive.append(weakref.ref(tensor))
        return {"t": tensor}

    with pipelined(CountingSource(50), process, buffer_size=8, start_delay_s=5) as pipeline:
        pipeline.wait_until_ready()
    gc.collect()

    assert len(alive) >= 8
    assert [ref for ref in alive if ref() is not None] == []


def test_a_batch_that_was_trained_on_is_held_by_no_phase() -> None:
    import gc
    import weakref

    class Tensor:
        pass

    with pipelined(CountingSource(1), lambda batch: {"t": Tensor()}) as pipeline:
        batch = next(pipeline)
        tensor = weakref.ref(batch.tensors["t"])
        del batch
        time.sleep(0.05)
        gc.collect()
        assert tensor() is None


@pytest.mark.parametrize(("producers", "models"), [([Producer(double)], []), ([], [None])])
def test_a_pipeline_without_producer_or_model_device_is_refused(producers: list[Producer], models: list[None]) -> None:
    with pytest.raises(PipelineError, match="needs a producer and a model device"):
        Pipeline(CountingSource(1), producers, model_devices=models)


def test_the_pipeline_fills_in_its_telemetry() -> None:
    def measure(batch: Mapping[str, Any]) -> BatchSize:
        return BatchSize(audio_seconds=3.0, padded_seconds=4.0)

    with pipelined(CountingSource(20), buffer_size=5, measure=measure) as pipeline:
        for _ in pipeline:
            pass
        window = pipeline.telemetry.window()

    assert window.steps == 20
    assert window.padding_share == pytest.approx(0.25)
    assert window.buffer_capacity == 5
    assert window.audio_seconds_per_s == pytest.approx(60 / window.seconds)
    assert {phase: figures.ms_per_batch is not None for phase, figures in window.phases.items()} == {
        "source": True,
        "process": True,
        "transfer": True,
        "train": True,
    }


def test_a_source_that_fails_to_close_does_not_hide_the_error_that_closed_the_pipeline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class StubbornSource(CountingSource):
        def close(self) -> None:
            raise OSError("cannot close")

    with (
        pytest.raises(ValueError, match="the real one"),
        pipelined(StubbornSource(5), fail_at(0, ValueError("the real one"))) as pipeline,
    ):
        list(pipeline)

    assert "the source could not be closed" in caplog.text
