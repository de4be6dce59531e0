"""Plans of epochs: complete, deterministic, little padding, few shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.data.planning import BatchLimits, BatchPlanner, EpochPlan, bucket_of, choose_bounds, histogram_of
from myxtts.errors import DataError

RATE = 22050
BUDGET = BatchLimits(120 * RATE)


def lengths_like_ljspeech(clips: int = 13_100, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """1.1 to 10.1 s, mean 6.6 s, more long than short clips, 14 characters a second give or take 15 %."""
    rng = np.random.default_rng(seed)
    seconds = 1.1 + 9.0 * rng.beta(3.2, 2.0, clips)
    text = np.maximum(3, seconds * 14 * rng.normal(1, 0.15, clips))
    return (seconds * RATE).astype(np.int64), text.astype(np.int64)


def lengths_like_kathleen(clips: int = 592) -> tuple[np.ndarray, np.ndarray]:
    """The real corpus's lengths: 0.76 to 6.47 s, quartiles 2.42, 2.99 and 3.59 s."""
    at = np.linspace(0, 1, clips)
    seconds = np.interp(at, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1], [0.76, 1.70, 2.42, 2.99, 3.59, 4.38, 6.47])
    return (seconds * RATE).astype(np.int64), (seconds * 13).astype(np.int64)


def planner(lengths: tuple[np.ndarray, np.ndarray], limits: BatchLimits = BUDGET, **options: object) -> BatchPlanner:
    return BatchPlanner(*lengths, limits, **options)  # type: ignore[arg-type]


def shapes(plan: EpochPlan) -> list[tuple[int, int, int]]:
    return [(len(clips), wave, text) for clips, wave, text in map(plan.batch, range(len(plan)))]


@given(
    lengths=st.lists(st.integers(1, 400_000), min_size=1, max_size=120),
    rows=st.one_of(st.none(), st.integers(1, 40)),
    epoch=st.integers(0, 5),
    readers=st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_every_clip_is_in_exactly_one_batch_that_holds_it(
    lengths: list[int], rows: int | None, epoch: int, readers: int
) -> None:
    wave = np.array(lengths)
    text = wave // 1500 + 1
    if len(wave) < readers:
        with pytest.raises(DataError, match="cannot feed"):
            BatchPlanner(wave, text, BatchLimits(rows=rows) if rows else BatchLimits(RATE * 20), readers=readers)
        return

    plan = BatchPlanner(wave, text, BatchLimits(rows=rows) if rows else BatchLimits(RATE * 20), readers=readers).plan(
        epoch
    )

    assert sorted(plan.clips.tolist()) == list(range(len(wave)))
    assert len(plan) >= readers
    for position in range(len(plan)):
        clips, wave_samples, text_tokens = plan.batch(position)
        assert len(clips) > 0
        assert wave[clips].max() <= wave_samples
        assert text[clips].max() <= text_tokens
        assert (wave_samples <= wave.max(), text_tokens <= text.max()) == (True, True), "what fits must fit padded"
        if rows is not None:
            assert len(clips) <= rows
        else:
            assert len(clips) == 1 or len(clips) * wave_samples <= RATE * 20


@pytest.mark.parametrize("limits", [BUDGET, BatchLimits(rows=16), BatchLimits(rows=32), BatchLimits(30 * RATE)])
@pytest.mark.parametrize("lengths", [lengths_like_ljspeech(), lengths_like_kathleen()], ids=["ljspeech", "kathleen"])
def test_at_most_a_tenth_of_an_epoch_is_padding(lengths: tuple[np.ndarray, np.ndarray], limits: BatchLimits) -> None:
    plan = planner(lengths, limits).plan(0)

    padded = sum(rows * wave for rows, wave, _ in shapes(plan))

    assert 1 - lengths[0].sum() / padded <= 0.10
    assert planner(lengths, limits).wave_padding_share == pytest.approx(1 - lengths[0].sum() / padded)


def test_shapes_are_few_and_wave_shapes_are_the_same_in_every_epoch() -> None:
    plans = [planner(lengths_like_ljspeech(), seed=3).plan(epoch) for epoch in range(3)]

    assert len(set(shapes(plans[0]))) <= 32
    assert len({shape for plan in plans for shape in shapes(plan)}) <= 36
    assert len({tuple(sorted((rows, wave) for rows, wave, _ in shapes(plan))) for plan in plans}) == 1


def test_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = lengths_like_kathleen()
    first = planner(lengths, seed=1).plan(4)

    np.testing.assert_array_equal(planner(lengths, seed=1).plan(4).clips, first.clips)
    assert (planner(lengths, seed=1).plan(5).clips != first.clips).any()
    assert (planner(lengths, seed=2).plan(4).clips != first.clips).any()


def test_clips_change_company_between_epochs() -> None:
    plan = planner(lengths_like_ljspeech(2000))
    company = []
    for epoch in range(2):
        batches = plan.plan(epoch)
        company.append({frozenset(batches.batch(position)[0].tolist()) for position in range(len(batches))})

    assert len(company[0] & company[1]) <= 1


def test_long_and_short_batches_alternate() -> None:
    waves = planner(lengths_like_ljspeech()).plan(0).wave_samples

    assert abs(np.corrcoef(np.arange(len(waves)), waves)[0, 1]) < 0.2


def test_a_plan_over_some_clips_has_only_those() -> None:
    chosen = np.arange(0, 592, 20)

    plan = planner(lengths_like_kathleen(), clips=chosen).plan(0)

    assert sorted(plan.clips.tolist()) == chosen.tolist()


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_bounds_are_the_cheapest_that_hold_all(lengths: list[int], count: int) -> None:
    array = np.array(lengths)
    bounds = choose_bounds(histogram_of(array, 8), count)

    assert len(bounds) <= count
    assert (np.diff(bounds) > 0).all()
    assert (bounds % 8 == 0).all()
    padded = bounds[bucket_of(array, bounds)]
    assert (padded >= array).all()
    # No worse than equally wide buckets, which anyone would write first.
    wide = -(-np.linspace(0, array.max(), count + 1)[1:] // 24) * 24
    wide[-1] = max(wide[-1], bounds[-1])
    assert padded.sum() <= wide[np.searchsorted(wide, array)].sum() + 24 * len(array)
