"""Augmentation of batches: what is drawn, that it is drawn anew in the same way, and in whichever process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.augmentation import Augmentation, drop_texts, perturb_speed, token_corruption
from myxtts.data.batching import BatchSource, batches
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus, open_prepared
from myxtts.errors import DataError
from tests.corpus_maker import batch_digest, make_ljspeech, settings

RATE, CODE = 22050, 1024


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    root = tmp_path_factory.mktemp("augmentation")
    return prepare(make_ljspeech(root / "corpus", 24), settings(root), workers=1)


@pytest.fixture(scope="module")
def everything(prepared: PreparedCorpus) -> Augmentation:
    """All kinds of augmentation at once; the tokens of a clip are spoken equally long."""
    rows = []
    for clip in range(len(prepared)):
        wave, tokens = prepared.read_arrays(clip)
        rows.append(np.linspace(1, len(tokens) - 0.01, codes_of(len(wave)), endpoint=False).astype(np.uint16))
    return Augmentation(
        reference_seconds=0.8,
        alignments=Alignments(np.concatenate(rows), np.cumsum([0, *map(len, rows)])),
        concatenation=0.7,
        speed_perturbation=0.08,
        speed_perturbation_batches=40,
        text_dropout=0.3,
        token_corruption=0.25,
        audio_codes=512,
    )


def augmented(
    prepared: PreparedCorpus,
    augmentation: Augmentation | None,
    *,
    batch_size: int = 4,
    num_workers: int = 0,
    **options: Any,
) -> BatchSource:
    config = settings(prepared.path.parent, batch_size=batch_size, num_workers=num_workers)
    return batches(prepared, **{"config": config, "seed": 5, "augmentation": augmentation, **options})


def digests(source: BatchSource, count: int) -> list[str]:
    return [batch_digest(batch) for batch in itertools.islice(source, count)]


def test_an_augmented_batch_has_what_was_asked_for_and_nothing_else(
    prepared: PreparedCorpus, everything: Augmentation
) -> None:
    read = set(next(augmented(prepared, None)))

    assert set(next(augmented(prepared, Augmentation()))) - read == {"draw"}
    batch = next(augmented(prepared, everything))
    assert set(batch) - read == {"draw", "reference", "reference_lengths", "alignment", "corruption"}
    codes = codes_of(batch["wave"].shape[1])
    assert batch["alignment"].shape == batch["corruption"].shape == (4, codes)
    assert {name: batch[name].dtype.name for name in set(batch) - read} == {
        "draw": "float32", "reference": "int16", "reference_lengths": "int32", "alignment": "int32",
        "corruption": "int32",
    }  # fmt: skip


def test_the_draws_are_those_of_version_0_1(prepared: PreparedCorpus, everything: Augmentation) -> None:
    """Batch 3 of epoch 1, as 0.1 drew it: its runs go on to the same losses. Token corruption was drawn elsewhere."""
    batch = next(itertools.islice(augmented(prepared, everything, epoch=1), 3, None))

    assert {name: batch[name].tolist() for name in ("clip", "reference_lengths", "wave_lengths", "text_lengths")} == {
        "clip": [7, 8, 16, 17],
        "reference_lengths": [8621, 8700, 8319, 8820],
        "wave_lengths": [29007, 26454, 28754, 26208],
        "text_lengths": [0, 21, 33, 0],
    }
    assert batch["draw"].tolist() == pytest.approx([0.55311108, 0.33029503, 0.47906059, 0.73246294])
    assert batch["alignment"].sum() == 1569


@pytest.mark.parametrize("num_workers", [1, 2])
def test_worker_processes_augment_as_the_training_process_does(
    prepared: PreparedCorpus, everything: Augmentation, num_workers: int
) -> None:
    expected = digests(augmented(prepared, everything), 14)

    with augmented(prepared, everything, num_workers=num_workers) as source:
        assert digests(source, 5) == expected[:5]
        state = source.get_state()
        assert digests(source, 3) == expected[5:8]
    resumed = augmented(prepared, everything)
    resumed.set_state(state)

    assert digests(resumed, 9) == expected[5:]
    assert len(set(expected)) == len(expected)


@pytest.mark.parametrize("consumed", [1, 4, 6, 11])
def test_a_resumed_reader_draws_what_an_uninterrupted_one_would_have_drawn(
    prepared: PreparedCorpus, everything: Augmentation, consumed: int
) -> None:
    whole = digests(augmented(prepared, everything), consumed + 8)
    interrupted = augmented(prepared, everything)
    digests(interrupted, consumed)

    resumed = augmented(prepared, everything)
    resumed.set_state(interrupted.get_state())

    assert digests(resumed, 8) == whole[consumed:]


def test_several_readers_together_read_the_augmented_batches_of_one(
    prepared: PreparedCorpus, everything: Augmentation
) -> None:
    alone = digests(augmented(prepared, everything, epochs=3), 100)

    shares = [digests(augmented(prepared, everything, epochs=3, shard=(reader, 2)), 100) for reader in (0, 1)]

    assert [digest for pair in zip(*shares, strict=True) for digest in pair] == alone


def test_the_draws_of_two_epochs_and_of_two_seeds_differ(prepared: PreparedCorpus) -> None:
    first, second = (next(augmented(prepared, Augmentation(), epoch=epoch))["draw"] for epoch in (0, 1))
    other = next(augmented(prepared, Augmentation(), seed=6))["draw"]

    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_a_reference_is_a_piece_of_another_clip_that_may_be_used(prepared: PreparedCorpus) -> None:
    clips = np.array([2, 3, 5, 8, 13, 21])
    waves = {int(clip): prepared.read_arrays(int(clip))[0] for clip in clips}
    widths = set()
    for batch in itertools.islice(augmented(prepared, Augmentation(reference_seconds=0.4), clips=clips), 12):
        widths.add(batch["reference"].shape[1])
        for row, clip in enumerate(batch["clip"].tolist()):
            piece = batch["reference"][row, : batch["reference_lengths"][row]].tobytes()
            assert [other for other, wave in waves.items() if piece in wave.tobytes() and other != clip]

    assert widths == {int(0.4 * RATE), int(0.2 * RATE)}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_reference_that_cannot_be_read_is_an_error_that_names_its_shard(tmp_path: Path, num_workers: int) -> None:
    """In shards of 32 clips, the last clip is in the second one, and the only reference for the first clip."""
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 33), settings(tmp_path), workers=1)
    clips = np.array([0, 32])
    whole = [next(augmented(prepared, None, clips=clips, batch_size=1, epoch=epoch)) for epoch in range(10)]
    epoch = [int(batch["clip"][0]) for batch in whole].index(0)
    shard = prepared.path / "shard-00001.array_record"
    shard.write_bytes(bytes(shard.stat().st_size))
    options: dict[str, Any] = {"clips": clips, "batch_size": 1, "epoch": epoch, "num_workers": num_workers}

    with (
        augmented(open_prepared(prepared.path), Augmentation(reference_seconds=0.4), **options) as source,
        pytest.raises(DataError, match=r"shard-00001.array_record, record 0, is damaged"),
    ):
        next(source)


def one_clip(seconds: float, room_s: float, hertz: float = 200.0) -> dict[str, Any]:
    """A tone in a wider batch; its alignment counts codes, so that it says which code of the clip it came from."""
    length, width = round(seconds * RATE), round((seconds + room_s) * RATE)
    wave = np.zeros((1, width), np.int16)
    wave[0, :length] = 20000 * np.sin(2 * np.pi * hertz * np.arange(length) / RATE)
    alignment = np.minimum(np.arange(codes_of(width)), codes_of(length) - 1)[None].astype(np.int32)
    return {"wave": wave, "wave_lengths": np.array([length], np.int32), "alignment": alignment}


def pitch(batch: dict[str, Any], name: str = "wave") -> float:
    wave = batch[name][0, : batch[f"{name}_lengths"][0]].astype(float)
    return float(np.sum((wave[:-1] < 0) & (wave[1:] >= 0)) / (len(wave) / RATE))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_perturbed_clip_is_the_same_sound_a_little_faster_or_slower_with_its_alignment(seed: int) -> None:
    batch = one_clip(4.0, room_s=1.0)

    perturb_speed(batch, 0.1, np.random.default_rng(seed))

    speed = pitch(batch) / 200.0
    assert 0.89 < speed < 1.11
    assert abs(speed - 1.0) > 0.003, "the speed of this clip did not change"
    assert batch["wave_lengths"][0] * speed == pytest.approx(4.0 * RATE, abs=CODE + 0.01 * RATE * 4)
    assert not batch["wave"][0, batch["wave_lengths"][0] :].any()
    codes = np.arange(codes_of(int(batch["wave_lengths"][0])) - 1)
    came_from = batch["alignment"][0, : len(codes)]
    assert np.all(came_from - codes * speed < 1.5)
    assert np.all(came_from - codes * speed > -1.5)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_reference_is_as_fast_as_its_clip(seed: int) -> None:
    """It says whose voice to speak with, and a faster voice is a higher one."""
    other = one_clip(1.5, room_s=0.0, hertz=300.0)
    batch = {**one_clip(4.0, room_s=1.0), "reference": other["wave"], "reference_lengths": other["wave_lengths"]}

    perturb_speed(batch, 0.1, np.random.default_rng(seed))

    assert pitch(batch, "reference") / 300.0 == pytest.approx(pitch(batch) / 200.0, abs=0.005)
    assert not batch["reference"][0, batch["reference_lengths"][0] :].any()


def test_speed_perturbation_falls_to_nothing_over_its_batches(prepared: PreparedCorpus) -> None:
    augmentation = Augmentation(speed_perturbation=0.3, speed_perturbation_batches=40)
    source = augmented(prepared, augmentation, batch_size=1)
    lost = []
    for batch in itertools.islice(source, 60):
        own = int(prepared.index.wave_samples[int(batch["clip"][0])])
        lost.append(abs(own - int(batch["wave_lengths"][0])) / own)
    source.close()

    longest_offset = CODE / int(np.min(prepared.index.wave_samples))
    assert max(lost[:10]) > 2 * longest_offset > 2 * max(lost[40:])
    assert min(lost[40:]) < max(lost[40:]), "clips are to begin at other samples all the same"


def test_a_perturbed_clip_keeps_its_high_tones_and_does_not_wrap_around_where_it_is_loud() -> None:
    """Linear interpolation took 8 kHz away; a resampler overshoots at full level."""
    for seed in range(4):
        batch = one_clip(1.0, room_s=0.5, hertz=7900.0)
        batch["wave"][0, :RATE] = np.clip(2 * batch["wave"][0, :RATE].astype(int), -32767, 32767)
        level = np.std(batch["wave"][0, :RATE].astype(float))

        perturb_speed(batch, 0.0 if seed == 0 else 0.05, np.random.default_rng(seed))

        samples = batch["wave"][0, 100 : batch["wave_lengths"][0] - 100].astype(float)
        assert np.std(samples) == pytest.approx(level, rel=0.15)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        highest = int(np.argmax(spectrum))
        assert np.sum(spectrum[highest - 5 : highest + 6] ** 2) > 0.9 * np.sum(spectrum**2), "it wraps around"


def test_a_clip_without_room_behind_it_is_not_slowed_down() -> None:
    for seed in range(20):
        batch = one_clip(1.0, room_s=0.0)
        perturb_speed(batch, 0.3, np.random.default_rng(seed))
        assert pitch(batch) > 195.0


def test_the_same_draw_perturbs_the_same_and_another_one_differently() -> None:
    first, again, other = (one_clip(1.0, room_s=0.5) for _ in range(3))
    for batch, seed in ((first, 1), (again, 1), (other, 2)):
        perturb_speed(batch, 0.1, np.random.default_rng(seed))

    assert np.array_equal(first["wave"], again["wave"])
    assert not np.array_equal(first["wave"], other["wave"])


def test_the_texts_of_a_share_of_the_clips_are_dropped() -> None:
    batch = {"text_lengths": np.full(4000, 7, np.int32)}

    drop_texts(batch, 0.1, np.random.default_rng(3))

    read = batch["text_lengths"]
    assert (set(read.tolist()), read.dtype) == ({0, 7}, np.int32)
    assert np.mean(read == 0) == pytest.approx(0.1, abs=0.02)


def test_token_corruption_replaces_its_share_of_the_codes_by_any_code_of_the_vocabulary() -> None:
    corruption = token_corruption((40, 250), 0.25, 1024, np.random.default_rng(3))

    assert corruption.dtype == np.int32
    assert np.mean(corruption >= 0) == pytest.approx(0.25, abs=0.02)
    replacing = corruption[corruption >= 0]
    assert (corruption.min(), replacing.max()) == (-1, pytest.approx(1023, abs=10))
    assert replacing.mean() == pytest.approx(511.5, rel=0.05)


def test_token_corruption_without_the_size_of_the_codebook_is_refused() -> None:
    with pytest.raises(ValueError, match="audio_codes is 0"):
        Augmentation(token_corruption=0.1)
