"""Batches read from shards: content, order, exact resumption, several readers and workers."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal

import numpy as np
import pytest

from myxtts.data.batching import BatchSource, batches
from myxtts.data.ljspeech import LJSpeechDataset
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus, held_out_of
from myxtts.data.state import place_in_plan
from myxtts.errors import DataError
from tests.corpus_maker import batch_digest, make_ljspeech, settings


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    root = tmp_path_factory.mktemp("batches")
    return prepare(make_ljspeech(root / "corpus", 60), settings(root), workers=1)


def source(prepared: PreparedCorpus, num_workers: int = 0, **options: object) -> BatchSource:
    config = settings(prepared.path.parent, batch_seconds=5.0, num_workers=num_workers)
    return batches(prepared, **{"config": config, "seed": 7, **options})  # type: ignore[arg-type]


def digests(reader: BatchSource, count: int) -> list[str]:
    return [batch_digest(batch) for batch in itertools.islice(reader, count)]


def test_a_batch_holds_the_clips_padded_with_zeros(prepared: PreparedCorpus) -> None:
    for batch in source(prepared, epochs=1):
        assert {name: array.dtype.name for name, array in batch.items()} == {
            "wave": "int16", "wave_lengths": "int32", "text": "int32", "text_lengths": "int32",
            "speaker": "int32", "language": "int32", "clip": "int64",
        }  # fmt: skip
        for row, clip in enumerate(batch["clip"]):
            record = prepared.read(int(clip))
            samples, tokens = batch["wave_lengths"][row], batch["text_lengths"][row]
            np.testing.assert_array_equal(batch["wave"][row, :samples], record.wave)
            np.testing.assert_array_equal(batch["text"][row, :tokens], record.tokens)
            assert not batch["wave"][row, samples:].any()
            assert not batch["text"][row, tokens:].any()


def test_an_epoch_has_every_clip_once_and_the_promised_number_of_batches(prepared: PreparedCorpus) -> None:
    reader = source(prepared, epochs=1)
    read = list(reader)

    assert len(read) == reader.batches_per_epoch
    assert sorted(np.concatenate([batch["clip"] for batch in read]).tolist()) == list(range(60))
    padded, spoken = sum(batch["wave"].size for batch in read), sum(batch["wave_lengths"].sum() for batch in read)
    assert 1 - spoken / padded == pytest.approx(reader.wave_padding_share)


def test_without_epochs_it_goes_on_and_the_next_epoch_differs(prepared: PreparedCorpus) -> None:
    reader = source(prepared)
    count = reader.batches_per_epoch

    first, second = digests(reader, count), digests(reader, count)

    assert first != second
    assert second == digests(source(prepared, epoch=1), count)


def test_a_fixed_batch_size_is_kept(prepared: PreparedCorpus) -> None:
    config = settings(prepared.path.parent, batch_size=8)

    rows = [len(batch["clip"]) for batch in source(prepared, config=config, epochs=1)]

    assert sorted(rows) == [4, 8, 8, 8, 8, 8, 8, 8]


def test_clips_and_seconds_limit_a_batch_together(prepared: PreparedCorpus) -> None:
    both = source(prepared, config=settings(prepared.path.parent, batch_size=3, batch_seconds=2.5), epochs=1)

    sizes = [(len(batch["clip"]), batch["wave"].size) for batch in both]

    assert max(rows for rows, _ in sizes) == 3
    assert max(samples for rows, samples in sizes if rows > 1) <= 2.5 * 22050


@pytest.mark.parametrize("consumed", [0, 1, 5, 11])
def test_a_restored_state_gives_the_very_next_batch(prepared: PreparedCorpus, consumed: int) -> None:
    whole = digests(source(prepared), consumed + 12)
    interrupted = source(prepared)
    digests(interrupted, consumed)
    state = json.loads(json.dumps(interrupted.get_state()))

    resumed = source(prepared)
    resumed.set_state(state)

    assert all(isinstance(value, int) for value in state.values())
    assert len(state) <= 8
    assert digests(resumed, 12) == whole[consumed:]


def test_a_state_can_be_restored_into_a_reader_that_has_read(prepared: PreparedCorpus) -> None:
    reader = source(prepared)
    state = reader.get_state()
    first = digests(reader, 9)

    reader.set_state(state)

    assert digests(reader, 9) == first


@pytest.mark.parametrize("readers", [2, 3])
def test_every_so_manieth_batch_is_the_same_batch_over_the_ends_of_epochs_too(
    prepared: PreparedCorpus, readers: int
) -> None:
    count = 2 * source(prepared).batches_per_epoch + readers
    whole = digests(source(prepared), count)

    for first in range(readers):
        reader = source(prepared, stride=readers)
        reader.go_to(first)
        assert digests(reader, len(whole[first::readers])) == whole[first::readers]


def test_a_reader_goes_to_any_batch_and_counts_those_that_it_skips(prepared: PreparedCorpus) -> None:
    whole = digests(source(prepared), 9)
    reader, skipping = source(prepared), source(prepared)

    reader.go_to(7)
    assert digests(reader, 2) == whole[7:]
    reader.go_to(2)
    assert digests(reader, 1) == whole[2:3]
    assert [skipping.skip() for _ in range(3)] == [0, 1, 2]
    assert digests(skipping, 1) == whole[3:4]


def test_worker_processes_give_the_same_batches_and_the_state_fits_either(prepared: PreparedCorpus) -> None:
    expected = digests(source(prepared), 14)
    with source(prepared, num_workers=2) as reader:
        assert digests(reader, 5) == expected[:5]
        state = reader.get_state()
    with source(prepared, num_workers=1) as fewer:
        fewer.set_state(state)
        assert digests(fewer, 5) == expected[5:10]
        state = fewer.get_state()
    threads = source(prepared, num_workers=0)
    threads.set_state(state)

    assert digests(threads, 4) == expected[10:]


def test_a_signal_to_the_whole_group_leaves_workers_reading_and_one_that_dies_is_an_error(
    prepared: PreparedCorpus,
) -> None:
    """Ctrl-C in a terminal and a service's SIGTERM reach the workers too; the training process finishes its step."""
    expected = digests(source(prepared), 12)
    with source(prepared, num_workers=1) as reader:
        assert digests(reader, 1) == expected[:1]
        (worker,) = multiprocessing.active_children()
        assert worker.pid is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(worker.pid, number)
        assert digests(reader, 11) == expected[1:]

        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(DataError, match=r"reads the corpus has ended \(exit code -9\)") as caught:
            digests(reader, 20)

    assert "--num-workers" in caught.value.hint


@pytest.mark.parametrize("readers", [2, 3, 5, 60])
def test_readers_share_an_epoch_without_gap_or_overlap(prepared: PreparedCorpus, readers: int) -> None:
    clips = []
    counts = []
    for reader in range(readers):
        share = list(source(prepared, shard=(reader, readers), epochs=1))
        counts.append(len(share))
        clips.extend(np.concatenate([batch["clip"] for batch in share]).tolist())

    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    assert sorted(clips) == list(range(60))


def test_more_readers_than_clips_is_an_error(prepared: PreparedCorpus) -> None:
    with pytest.raises(DataError, match="60 clips cannot feed 61 readers"):
        next(source(prepared, shard=(0, 61)))


def test_a_reader_outside_the_group_is_an_error(prepared: PreparedCorpus) -> None:
    with pytest.raises(DataError, match="reader 2 of 2"):
        source(prepared, shard=(2, 2))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 8}, "--seed was changed"),
        ({"shard": (0, 2)}, "batch settings were changed|number of readers"),
        ({"clips": np.arange(30)}, "the corpus or the batch settings were changed"),
    ],
)
def test_a_state_of_another_plan_is_refused(prepared: PreparedCorpus, options: dict[str, object], named: str) -> None:
    state = source(prepared).get_state()

    with pytest.raises(DataError, match=named):
        source(prepared, **options).set_state(state)


def test_a_reader_of_a_corpus_that_has_changed_goes_on_with_the_next_epoch(prepared: PreparedCorpus) -> None:
    """Clips came or went, so an epoch has another number of batches."""
    before = source(prepared)
    list(itertools.islice(before, before.batches_per_epoch + 3))
    same, fewer = source(prepared), source(prepared, clips=np.arange(40))
    whole_second_epoch = digests(source(prepared, clips=np.arange(40), epoch=2), 3)

    same.set_state(place_in_plan(before.get_state(), same.get_state()))
    fewer.set_state(place_in_plan(before.get_state(), fewer.get_state()))

    assert same.get_state() == before.get_state()
    assert (fewer.get_state()["epoch"], fewer.get_state()["position"]) == (2, 0)
    assert digests(fewer, 3) == whole_second_epoch


@pytest.mark.parametrize("state", [{}, {"epoch": 0}, {"epoch": "x", "position": 0}])
def test_a_damaged_state_is_refused(prepared: PreparedCorpus, state: dict[str, object]) -> None:
    with pytest.raises(DataError, match="a data state has"):
        source(prepared).set_state(state)


def test_the_documented_entry_gives_clips_and_batches(prepared: PreparedCorpus) -> None:
    config = settings(prepared.path.parent, batch_seconds=5.0)
    corpus = prepared.path.parent / "corpus"

    train, held_out = (LJSpeechDataset(corpus, config, subset=subset) for subset in ("train", "val"))

    assert (len(train), len(held_out)) == (57, 3)
    assert {record.id for record in held_out} == {f"clip_{clip}" for clip in held_out_of(60)}
    assert not {record.id for record in held_out} & {record.id for record in train}
    clips = np.concatenate([batch["clip"] for batch in train.batches(seed=1, epochs=1)])
    assert sorted(clips.tolist()) == train.clips.tolist()
