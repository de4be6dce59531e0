"""What a stage that makes mels learns from."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.dvae import DVAE
from myxtts.training.steps.codec import CodecStage
from myxtts.training.steps.mel_loss import MelLoss

SHARP = MelLoss(changes_weight=2.0)


def changes(made: np.ndarray, real: np.ndarray, lengths: list[int], scale: float = 1.0) -> float:
    terms = SHARP.terms(tf.constant(made), tf.constant(real), tf.constant(lengths), scale_M=np.full(80, scale))
    assert terms["changes"].weight == 2.0
    return float(terms["changes"].mean)


def test_speech_that_is_only_louder_changes_as_the_recording_does() -> None:
    real = np.random.default_rng(0).normal(-5.0, 2.0, (2, 20, 80)).astype(np.float32)

    assert changes(real + 3.0, real, [20, 20]) == pytest.approx(0.0, abs=1e-5)


def test_a_stop_that_is_smoothed_away_is_two_changes_missed() -> None:
    real = np.zeros((1, 20, 80), np.float32)
    real[0, 8:11] = -4.0

    assert changes(np.zeros_like(real), real, [20]) == pytest.approx(2 * 4.0 / 20)
    assert changes(np.zeros_like(real), real, [20], scale=2.0) == pytest.approx(2 * 2.0 / 20)


def test_nothing_behind_a_clip_changes_and_parts_of_a_batch_add_up() -> None:
    random = np.random.default_rng(1)
    real, made = (random.normal(-5.0, 2.0, (2, 20, 80)).astype(np.float32) for _ in range(2))
    other = made.copy()
    other[1, 12:] = 9.0

    whole = changes(made, real, [20, 12])

    assert changes(other, real, [20, 12]) == pytest.approx(whole)
    parts = changes(made[:1], real[:1], [20]), changes(made[1:], real[1:], [12])
    assert whole == pytest.approx((20 * parts[0] + 12 * parts[1]) / 32, rel=1e-5)


@pytest.mark.parametrize(("levels", "learnt"), [(1, False), (2, True)])
def test_only_a_codec_with_several_levels_learns_changes(levels: int, learnt: bool) -> None:
    sizes = {"dvae_width": 8, "dvae_code_width": 4, "audio_codes": 16, "code_levels": levels}
    dvae = DVAE(ModelConfig(model_size="tiny", **sizes))
    dvae.build()
    stage = CodecStage(dvae)
    batch = {"mel": tf.zeros([2, 16, 80]), "mel_lengths": tf.constant([16, 12])}

    terms = stage.objective(batch, seed=None, step=tf.constant(0)).terms

    assert ("changes" in terms) is learnt
    assert set(terms) <= set(stage.counts(batch))
