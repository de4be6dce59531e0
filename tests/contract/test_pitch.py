"""Pitch: found in recordings, and learnt by the mel decoder."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.audio.mel import HOP, SAMPLE_RATE, MelSpectrogram
from myxtts.audio.pitch import pitch_of
from myxtts.config.model import FRAMES_PER_CODE, ModelConfig
from myxtts.models.mel_decoder import MadeMel, MelDecoder, harmonic_comb
from myxtts.training.stages.mel_decoder import pitch_terms

SIZES = {"gpt_width": 16, "gpt_heads": 2, "dvae_width": 32, "dvae_code_width": 8}
CODES = 12


def buzz(hz: float, seconds: float = 0.5) -> np.ndarray:
    """Ten harmonics as a voice has them, the first the weakest."""
    phase_S = 2 * np.pi * hz * np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return sum(0.02 * (k + 1) ** 0.5 * np.cos(k * phase_S + k) for k in range(1, 11)).astype(np.float32)


@pytest.mark.parametrize("hz", [75.0, 110.0, 168.5, 240.0, 400.0])
@pytest.mark.parametrize("kind", [np.float32, np.int16])
def test_the_pitch_of_a_buzz_is_its_own(hz: float, kind: type) -> None:
    wave_S = buzz(hz) if kind is np.float32 else (buzz(hz) * 32767).astype(np.int16)

    pitch_T = pitch_of(tf.constant(wave_S[None]), tf.constant([len(wave_S)]))[0].numpy()

    np.testing.assert_allclose(pitch_T[3:-3], hz, rtol=0.01)


def test_noise_and_silence_have_no_pitch() -> None:
    noise_S = np.random.default_rng(0).normal(0.0, 0.1, SAMPLE_RATE // 2).astype(np.float32)

    pitch_BT = pitch_of(np.stack([noise_S, np.zeros_like(noise_S)]), np.array([len(noise_S)] * 2)).numpy()

    assert np.mean(pitch_BT[0] > 0) < 0.05
    assert not pitch_BT[1].any()


def test_a_clip_has_as_many_pitches_as_mel_frames_whatever_stands_behind_it() -> None:
    wave_BS = np.stack([buzz(150), buzz(150)])
    lengths_B = np.array([wave_BS.shape[1], 20 * HOP])

    alone_T = pitch_of(wave_BS[1:, : 20 * HOP], lengths_B[1:])[0].numpy()
    together_BT = pitch_of(wave_BS, lengths_B).numpy()

    assert together_BT.shape == MelSpectrogram()(wave_BS, lengths_B)[0].shape[:2]
    np.testing.assert_allclose(together_BT[1, :21], alone_T, rtol=1e-4)
    assert not together_BT[1, 21:].any()


def test_the_comb_is_one_on_harmonics_and_tells_voiced_from_unvoiced() -> None:
    comb_TM = harmonic_comb(tf.constant([[200.0, 0.0]]))[0].numpy()

    assert comb_TM[0, :40].max() > 0.8
    assert comb_TM[0, :40].min() < -0.8
    assert comb_TM[0, -2] == 1.0
    assert not comb_TM[1].any()


def test_the_mel_decoder_learns_a_pitch_that_its_codes_tell() -> None:
    keras.utils.set_random_seed(0)
    decoder = MelDecoder(ModelConfig(model_size="tiny", pitch_predictor=True, **SIZES))
    decoder.build()
    frames = CODES * FRAMES_PER_CODE
    vectors_BNC = np.random.default_rng(1).normal(0, 1, (2, CODES, 8)).astype(np.float32)
    latents_BND = np.zeros((2, CODES, 16), np.float32)
    lengths_B = np.array([CODES, CODES])
    pitch_BT = tf.constant(np.stack([np.full(frames, 110.0), np.full(frames, 230.0)]), tf.float32)
    pitch_BT *= tf.cast(tf.range(frames) < frames // 2, tf.float32)

    def made(given: tf.Tensor | None = None) -> MadeMel:
        return decoder(vectors_BNC, latents_BND, lengths_B, None, None, given)

    optimiser = keras.optimizers.Adam(3e-3)

    @tf.function
    def learn() -> tf.Tensor:
        with tf.GradientTape() as tape:
            terms = pitch_terms(made(pitch_BT), pitch_BT, tf.constant([frames, frames])).values()
            loss = tf.add_n([term.mean * term.weight for term in terms])
        variables = decoder.pitch.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimiser.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    for _ in range(150):
        learn()
    found_BT = made().pitch().numpy()

    half = frames // 2
    np.testing.assert_allclose(found_BT[:, 4 : half - 4], np.array([[110.0], [230.0]]).repeat(half - 8, 1), rtol=0.15)
    assert not found_BT[:, half + 4 :].any()
