"""A leak is found; a saw-tooth, a plateau, noise and the first steps' growth are not leaks."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.runtime.leaks import LeakWatch, detect_memory_leak

Samples = list[tuple[int, float]]


def noisy(memory_mb: float, generator: random.Random) -> float:
    return memory_mb + generator.gauss(0, 5)


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_of_1_mb_a_step_is_found_within_200_steps(seed: int) -> None:
    generator = random.Random(seed)
    samples = [(step, noisy(1000 + step, generator)) for step in range(200)]

    report = detect_memory_leak(samples)

    assert report.leaking
    assert report.rate_mb_per_1000_steps == pytest.approx(1000, rel=0.15)
    assert report.confidence > 0.99


def sawtooth(period: int, seed: int) -> Samples:
    generator = random.Random(seed)
    return [(step, noisy(1000 + 300 * (step % period) / period, generator)) for step in range(2000)]


def plateau(seed: int) -> Samples:
    generator = random.Random(seed)
    return [(step, noisy(1500, generator)) for step in range(2000)]


def warm_up(seed: int) -> Samples:
    generator = random.Random(seed)
    return [(step, noisy(500 + min(step, 80) * 10, generator)) for step in range(2000)]


def stairs(seed: int) -> Samples:
    """New bucket shapes allocate lasting buffers, now and then."""
    generator = random.Random(seed)
    return [(step, noisy(1000 + 80 * (step > 700) + 60 * (step > 1200), generator)) for step in range(2000)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("clean", [lambda s: sawtooth(50, s), lambda s: sawtooth(75, s), plateau, warm_up, stairs])
def test_memory_that_comes_back_is_no_leak_at_any_length(clean: object, seed: int) -> None:
    samples: Samples = clean(seed)  # type: ignore[operator]

    for length in range(100, 2001, 100):
        report = detect_memory_leak(samples[:length])
        assert not report.leaking, (length, report)


MEASURED_MB = {
    "codec, demo corpus": "824 827 854 861 862 865 866 865 867 866 871 868 870 1049 1051 1052 1053 1054 1054 1054 1003",
    "gpt": "1453 1503 1579 1581 1584 1586 1589 1591 1591 1592 1593 1593 1594 1874 1875 1875 1877 1878 1879 1881 1882",
    "codec, Kathleen": "886 918 917 919 919 921 926 920 921 923 926 927 927 1103 1103 1104 1107 1108 1108 1109 1109",
}
"""Every 40 steps from step 20 of healthy runs: buffers fill ever more slowly, the first validation is a stair."""


def measured(run: str) -> Samples:
    values = [float(value) for value in MEASURED_MB[run].split()]
    between = [
        a + (b - a) * step / 40 for a, b in itertools.pairwise([values[0] - 150, *values]) for step in range(1, 41)
    ]
    return list(enumerate(between[20:], start=1))


@pytest.mark.parametrize("run", sorted(MEASURED_MB))
def test_what_healthy_runs_gather_is_no_leak_at_any_length(run: str) -> None:
    samples = measured(run)

    assert [length for length in range(20, len(samples), 20) if detect_memory_leak(samples[:length]).leaking] == []


@pytest.mark.parametrize("run", sorted(MEASURED_MB))
def test_a_leak_of_1_mb_a_step_is_found_within_200_steps_of_a_run_that_still_warms_up(run: str) -> None:
    report = detect_memory_leak([(step, memory + step) for step, memory in measured(run)[:200]])

    assert report.leaking
    assert 900 < report.rate_mb_per_1000_steps < 1600, "the leak and what the run itself still gathers"


RECORDED: dict[str, list[float]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "memory_of_a_demo.json").read_text(encoding="utf-8")
)["mb"]
"""Of the demo's training on two simulated GPUs, every 10 steps of each stage from the first."""
STAGES = tuple(RECORDED)


def recorded(stage: str) -> Samples:
    between = [a + (b - a) * part / 10 for a, b in itertools.pairwise(RECORDED[stage]) for part in range(10)]
    return list(enumerate(between, start=1))


def first_warning(samples: Samples) -> int | None:
    """The step at which a run would warn, which looks every 100 steps at what `LeakWatch` keeps."""
    watch = LeakWatch()
    for number, (step, memory_mb) in enumerate(samples, start=1):
        watch.add(step, {"this process": memory_mb})
        if number % 100 == 0 and watch.reports()[0].leaking:
            return number
    return None


def with_leak(samples: Samples, mb_per_step: float, steps: int) -> Samples:
    """As if the run went on with the memory of its last 50 steps, and leaked from its first step on."""
    tail = samples[-50:]
    longer = [memory for _, memory in samples] + [tail[i % 50][1] for i in range(steps)]
    return [(step, memory + mb_per_step * step) for step, memory in enumerate(longer[:steps], start=1)]


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_of_the_demo_is_warned_of(stage: str) -> None:
    assert first_warning(recorded(stage)) is None
    assert first_warning(with_leak(recorded(stage), 0.0, 6000)) is None


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("mb_per_step", "within"), [(1.0, 200), (0.2, 900), (0.1, 1900), (0.05, 3000)])
def test_a_leak_is_found_in_every_stage_after_steps_that_its_rate_decides(
    stage: str, mb_per_step: float, within: int
) -> None:
    warned = first_warning(with_leak(recorded(stage), mb_per_step, within))

    assert warned is not None


def test_a_leak_that_begins_late_is_found_without_waiting_for_the_whole_window() -> None:
    samples = [(step, 1500.0 + max(0, step - 3000)) for step in range(3700)]

    warned = first_warning(samples)

    assert warned is not None
    assert warned <= 3600


LONGEST = 1200
noise = st.integers(0, 2**16).map(lambda seed: [random.Random(seed).uniform(-3, 3) for _ in range(LONGEST)])
"""Added to every curve below."""


def never_warned(memory_mb: list[float], noise_mb: list[float]) -> None:
    samples = [
        (step, 1000 + clean + noisy) for step, (clean, noisy) in enumerate(zip(memory_mb, noise_mb, strict=True))
    ]
    assert first_warning(samples) is None


@settings(max_examples=60)
@given(stairs=st.lists(st.tuples(st.integers(0, LONGEST), st.floats(1, 800)), max_size=4), noise_mb=noise)
def test_flat_between_a_few_stairs_is_no_leak(stairs: list[tuple[int, float]], noise_mb: list[float]) -> None:
    never_warned([sum(height for at, height in stairs if step >= at) for step in range(LONGEST)], noise_mb)


@settings(max_examples=60)
@given(height=st.floats(0, 300), pace=st.floats(1, 2000), noise_mb=noise)
def test_a_warm_up_of_300_mb_is_no_leak_however_slow(height: float, pace: float, noise_mb: list[float]) -> None:
    never_warned([height * (1 - math.exp(-step / pace)) for step in range(LONGEST)], noise_mb)


@settings(max_examples=60)
@given(height=st.floats(0, 2000), period=st.integers(2, 150), noise_mb=noise)
def test_a_saw_tooth_of_150_steps_is_no_leak_however_high(height: float, period: int, noise_mb: list[float]) -> None:
    never_warned([height * (step % period) / period for step in range(LONGEST)], noise_mb)


@settings(max_examples=60)
@given(arena_mb=st.floats(1, 64), first=st.integers(1, 100), growth=st.floats(1.5, 4), noise_mb=noise)
def test_an_allocator_that_adds_arenas_ever_more_rarely_is_no_leak(
    arena_mb: float, first: int, growth: float, noise_mb: list[float]
) -> None:
    arenas = [math.floor(math.log(max(step, first) / first, growth)) for step in range(LONGEST)]
    never_warned([arena_mb * number for number in arenas], noise_mb)


def test_too_few_samples_are_no_verdict() -> None:
    report = detect_memory_leak([(step, 1000.0 + step * 10) for step in range(20)])

    assert (report.leaking, report.confidence) == (False, 0.0)


def test_of_several_memories_the_one_that_leaks_is_named_and_only_the_last_steps_count() -> None:
    watch = LeakWatch(window=400)
    for step in range(1000):
        watch.add(step, {"this process": 900.0, "data device /GPU:0": 500.0 + step, "model device /GPU:1": 4000.0})

    first, *others = watch.reports()

    assert (first.leaking, first.memory) == (True, "data device /GPU:0")
    assert "1000 MB per 1,000 steps in data device /GPU:0" in first.describe()
    assert not any(report.leaking for report in others)

    for step in range(1000, 1400):
        watch.add(step, {"data device /GPU:0": 1500.0})

    assert not any(report.leaking for report in watch.reports())
