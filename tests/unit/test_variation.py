"""What keeps a small corpus from being learnt by heart: the same clip at another speed, and codes that are others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.data.batching import batches
from myxtts.data.prepare import prepare
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.training.alignment import codes_of
from myxtts.training.sources import DrawnBatches, hide_texts, speed_perturbation
from myxtts.training.stages.gpt import GPTStage, corrupt_tokens
from tests.corpus_maker import make_ljspeech, settings
from tests.small_model import SIZES

RATE, CODE = 22050, 1024


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
def test_a_varied_clip_is_the_same_sound_a_little_faster_or_slower_with_its_alignment(seed: int) -> None:
    batch = one_clip(4.0, room_s=1.0)

    speed_perturbation(batch, 0.1, np.random.default_rng(seed))

    speed = pitch(batch) / 200.0
    assert 0.89 < speed < 1.11
    assert abs(speed - 1.0) > 0.003, "this clip did not vary"
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

    speed_perturbation(batch, 0.1, np.random.default_rng(seed))

    assert pitch(batch, "reference") / 300.0 == pytest.approx(pitch(batch) / 200.0, abs=0.005)
    assert not batch["reference"][0, batch["reference_lengths"][0] :].any()


def test_variation_wears_off_until_every_clip_has_its_own_speed(tmp_path: Path) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 4), settings(tmp_path / "cache"), workers=1)
    clips = np.arange(len(prepared))
    source = DrawnBatches(
        batches(prepared, config=DataConfig(batch_size=1), seed=0, clips=clips),
        prepared,
        clips,
        seed=0,
        speed_perturbation=0.3,
        varied_batches=40,
    )
    lost = []
    for _ in range(60):
        batch = next(source)
        own = int(prepared.index.wave_samples[int(batch["clip"][0])])
        lost.append(abs(own - int(batch["wave_lengths"][0])) / own)
    source.close()

    longest_offset = CODE / int(np.min(prepared.index.wave_samples))
    assert max(lost[:10]) > 2 * longest_offset > 2 * max(lost[40:])
    assert min(lost[40:]) < max(lost[40:]), "codes are to begin elsewhere all the same"


def test_a_varied_clip_keeps_its_high_tones_and_does_not_wrap_around_where_it_is_loud() -> None:
    """Linear interpolation took 8 kHz away; a resampler overshoots at full level."""
    for seed in range(4):
        batch = one_clip(1.0, room_s=0.5, hertz=7900.0)
        batch["wave"][0, :RATE] = np.clip(2 * batch["wave"][0, :RATE].astype(int), -32767, 32767)
        level = np.std(batch["wave"][0, :RATE].astype(float))

        speed_perturbation(batch, 0.0 if seed == 0 else 0.05, np.random.default_rng(seed))

        heard = batch["wave"][0, 100 : batch["wave_lengths"][0] - 100].astype(float)
        assert np.std(heard) == pytest.approx(level, rel=0.15)
        spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
        highest = int(np.argmax(spectrum))
        assert np.sum(spectrum[highest - 5 : highest + 6] ** 2) > 0.9 * np.sum(spectrum**2), "it wraps around"


def test_a_clip_without_room_behind_it_is_not_slowed_down() -> None:
    for seed in range(20):
        batch = one_clip(1.0, room_s=0.0)
        speed_perturbation(batch, 0.3, np.random.default_rng(seed))
        assert pitch(batch) > 195.0


def test_the_same_draw_varies_the_same_and_another_one_differently() -> None:
    first, again, other = (one_clip(1.0, room_s=0.5) for _ in range(3))
    for batch, seed in ((first, 1), (again, 1), (other, 2)):
        speed_perturbation(batch, 0.1, np.random.default_rng(seed))

    assert np.array_equal(first["wave"], again["wave"])
    assert not np.array_equal(first["wave"], other["wave"])


def test_noise_draws_its_share_of_the_codes_anew() -> None:
    codes = tf.zeros([40, 250], tf.int32)

    read = corrupt_tokens(codes, 0.25, 1024, tf.constant([3, 4])).numpy()

    assert np.mean(read != 0) == pytest.approx(0.25, abs=0.02)
    assert 0 <= read.min() < read.max() < 1024
    assert np.array_equal(corrupt_tokens(codes, 0.25, 1024, tf.constant([3, 4])), read)
    assert not corrupt_tokens(codes, 0.0, 1024, tf.constant([3, 4])).numpy().any()


def test_the_texts_of_a_share_of_the_clips_are_hidden() -> None:
    batch = {"text_lengths": np.full(4000, 7, np.int32)}

    hide_texts(batch, 0.1, np.random.default_rng(3))

    read = batch["text_lengths"]
    assert (set(read.tolist()), read.dtype) == ({0, 7}, np.int32)
    assert np.mean(read == 0) == pytest.approx(0.1, abs=0.02)


def test_the_gpt_reads_noise_only_while_it_learns() -> None:
    config = XTTSConfig(model_size="tiny", dropout=0.0, text_vocab=16, **SIZES).model
    parts = GPT(config), Conditioning(config), DVAE(config)
    for part in parts:
        part.build()
    clean, noisy = GPTStage(*parts), GPTStage(*parts, token_corruption=0.5)
    mel = tf.random.stateless_normal([2, 64, 80], [1, 2])
    batch = clean.from_mels(tf.ones([2, 6], tf.int32), mel, tf.constant([6, 5]), tf.constant([64, 60]))

    def loss(stage: GPTStage, seed: tf.Tensor | None) -> float:
        return float(stage.objective(batch, seed=seed, step=tf.constant(0)).terms["audio"].mean)

    assert loss(noisy, None) == loss(clean, None) == loss(clean, tf.constant([1, 2]))
    assert loss(noisy, tf.constant([1, 2])) != loss(clean, None)
