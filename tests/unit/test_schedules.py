"""Every order of the threads around a channel, and pipelines that fail, end, hang and are closed anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import PipelineError
from myxtts.pipeline import Pipeline, Producer, SequentialPipeline
from myxtts.pipeline.channel import Channel, EndOfDataError, NotYetError, Signal, StoppedError
from tests.schedules import DeadlockError, TurnCondition, Turns, explore
from tests.unit.test_pipeline import CountingSource, double, pipeline_threads

Programs = tuple[Sequence[Callable[[], None]], Callable[[], None]]


def channels(turns: Turns, *capacities: int) -> tuple[Signal, list[Channel[int]]]:
    signal = Signal()
    signal.changed = TurnCondition(turns)  # type: ignore[assignment]
    return signal, [Channel(capacity, signal) for capacity in capacities]


def produce(channel: Channel[int], count: int, *, fails_at: int = -1, signal: Signal | None = None) -> None:
    """A source's thread, as the pipeline's: a failure goes through the signal."""
    try:
        for number in range(count):
            channel.reserve()
            if number == fails_at:
                raise OSError("the disk is gone")
            channel.put(number)
        channel.finish()
    except StoppedError:
        pass
    except OSError as error:
        assert signal is not None
        signal.fail(error)


def move(inbound: Channel[int], outbound: Channel[int]) -> None:
    try:
        while True:
            outbound.reserve()
            outbound.put(inbound.get())
    except EndOfDataError:
        outbound.finish()
    except StoppedError:
        pass


def consume(channel: Channel[int], seen: list[int], ended: list[str], timeout_s: float | None = None) -> None:
    while not ended:
        try:
            seen.append(channel.get(timeout_s))
        except NotYetError:
            timeout_s = None  # it polls once, then waits
        except (EndOfDataError, StoppedError) as end:
            ended.append(type(end).__name__)


@pytest.mark.parametrize("timeout_s", [None, 0.1])
@pytest.mark.parametrize("capacity", [1, 2])
def test_in_every_order_all_items_arrive_in_theirs_and_then_the_end(capacity: int, timeout_s: float | None) -> None:
    def make(turns: Turns) -> Programs:
        _, (first, second) = channels(turns, capacity, 1)
        seen: list[int] = []
        ended: list[str] = []

        def check() -> None:
            assert (seen, ended) == ([0, 1, 2], ["EndOfDataError"])

        return (
            lambda: produce(first, 3),
            lambda: move(first, second),
            lambda: consume(second, seen, ended, timeout_s),
        ), check

    assert explore(make, 400) == 400


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_in_every_order_a_failure_stops_everybody_and_is_kept(fails_at: int) -> None:
    def make(turns: Turns) -> Programs:
        signal, (first, second) = channels(turns, 1, 1)
        seen: list[int] = []
        ended: list[str] = []

        def check() -> None:
            assert ended == ["StoppedError"]
            assert str(signal.failure) == "the disk is gone"
            assert seen == list(range(len(seen)))
            assert len(seen) <= fails_at

        return (
            lambda: produce(first, 3, fails_at=fails_at, signal=signal),
            lambda: move(first, second),
            lambda: consume(second, seen, ended),
        ), check

    assert explore(make, 400) > 20


def test_in_every_order_closing_wakes_everybody_and_of_two_failures_the_first_counts() -> None:
    def make(turns: Turns) -> Programs:
        signal, (first, second) = channels(turns, 1, 2)
        seen: list[int] = []
        ended: list[str] = []
        failed: list[int] = []

        def fail(number: int) -> None:
            signal.fail(OSError(number))
            failed.append(number)

        def check() -> None:
            assert ended in (["StoppedError"], ["EndOfDataError"])
            assert seen == list(range(len(seen)))
            assert isinstance(signal.failure, OSError)
            assert signal.stopped

        return (
            lambda: produce(first, 2),
            lambda: move(first, second),
            lambda: consume(second, seen, ended),
            lambda: fail(1),
            lambda: (fail(2), signal.close())[1],
        ), check

    assert explore(make, 400) == 400


def test_the_checker_finds_a_deadlock() -> None:
    def make(turns: Turns) -> Programs:
        _, (channel,) = channels(turns, 1)
        return (lambda: channel.put(channel.get()), lambda: consume(channel, [], [])), lambda: None

    with pytest.raises(DeadlockError):
        explore(make, 10)


class Happening:
    """Something that happens to one batch in one phase."""

    def __init__(self, what: str, batch: int) -> None:
        # A phase may take as long as it likes over its first batch: a GPU may have to compile.
        self.what, self.batch = what, max(batch, 1) if what == "hang" else batch
        self.error = RuntimeError(f"batch {batch}")
        self.released = threading.Event()

    def __call__(self, number: int) -> None:
        if number != self.batch or self.what == "nothing":
            return
        if self.what == "error":
            raise self.error
        if self.what == "hang":
            self.released.wait(20)
        else:
            time.sleep(0.02)


WHAT = st.sampled_from(["nothing", "slow", "error", "hang"])


@settings(max_examples=12)
@given(
    st.sampled_from([Pipeline, SequentialPipeline]),
    st.tuples(WHAT, WHAT),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(1, 4),
    st.sampled_from(["all", "close", "raise"]),
    st.integers(0, 5),
)
def test_a_pipeline_ends_with_its_batches_or_its_first_error_and_leaves_no_thread(
    kind: Any, what: tuple[str, str], batches: tuple[int, int], buffer_size: int, leaves: str, at: int
) -> None:
    if kind is SequentialPipeline and what[1] == "hang":
        what = (what[0], "error")  # it processes on the caller's thread, which nobody watches
    reading, processing = (Happening(*pair) for pair in zip(what, batches, strict=True))

    def process(batch: Mapping[str, Any]) -> dict[str, Any]:
        processing(int(batch["number"][0]))
        return double(batch)

    seen: list[int] = []
    pipeline = kind(
        CountingSource(6, before=reading),
        [Producer(process)],
        model_devices=[None],
        buffer_size=buffer_size,
        # Nothing else may look hung, however little of a CPU it gets.
        hang_timeout_s=0.1 if "hang" in what else 60,
    )
    try:
        with pipeline:
            for batch in pipeline:
                seen.append(batch.index)
                if leaves != "all" and batch.index == at:
                    if leaves == "raise":
                        raise KeyError("the caller's own")
                    pipeline.close()
                    break
    except (RuntimeError, KeyError, PipelineError) as error:
        mine = leaves == "raise" and isinstance(error, KeyError)
        assert mine or "hang" in what or error in (reading.error, processing.error)
    else:
        assert leaves == "close" or (seen == list(range(6)) and not {"error", "hang"} & set(what))
    finally:
        for happening in (reading, processing):
            happening.released.set()

    assert seen == list(range(len(seen)))
    for _ in range(2000):
        if not pipeline_threads():
            break
        time.sleep(0.01)
    assert pipeline_threads() == []
