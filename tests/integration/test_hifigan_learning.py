"""HiFi-GAN learns one clip; its lengths are what they should be. With its discriminators: test_decoder_stage."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.audio.mel import MelSettings, MelSpectrogram
from myxtts.config.model import ModelConfig
from myxtts.models.hifigan import Conv, HiFiGAN, samples_of, to_output_rate

CONFIG = ModelConfig(model_size="tiny", gpt_width=16, gpt_heads=2, decoder_width=32, speaker_width=8)
MEL = MelSpectrogram(MelSettings(sample_rate=24000), whole=True)
LATENTS = 3


def log_mel(wave_BS: tf.Tensor) -> tf.Tensor:
    return MEL.log_mel(wave_BS, tf.fill([tf.shape(wave_BS)[0]], tf.shape(wave_BS)[1]))[0]


def target_wave() -> np.ndarray:
    """A vowel: a buzz of ten harmonics."""
    time_s = np.arange(samples_of(LATENTS)) / 24000
    return sum(0.3 / k * np.sin(2 * np.pi * 140 * k * time_s) for k in range(1, 11))[None].astype(np.float32)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(1, LATENTS, 16)).astype(np.float32), random.normal(size=(1, 8)).astype(np.float32)


@pytest.mark.slow
def test_the_mel_loss_falls_by_half() -> None:
    keras.utils.set_random_seed(0)
    decoder = HiFiGAN(CONFIG)
    decoder.build()
    optimizer = keras.optimizers.AdamW(4e-3, beta_1=0.8, beta_2=0.99)
    optimizer.build(decoder.trainable_variables)
    real_BS = tf.constant(target_wave())
    latents_BND, speaker_BV = inputs()

    @tf.function(autograph=False)  # its rewriting costs more than the tracing
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            made_BS = decoder(latents_BND, speaker_BV, training=True)
            loss = tf.reduce_mean(tf.abs(log_mel(real_BS) - log_mel(made_BS)))
        gradients = tape.gradient(loss, decoder.trainable_variables)
        optimizer.apply_gradients(zip(gradients, decoder.trainable_variables, strict=True))
        return loss

    first = float(step())
    for _ in range(89):
        last = float(step())

    assert last < 0.5 * first


@pytest.mark.parametrize("latents", [1, 2, 9, 43])
def test_a_wave_has_the_samples_that_are_promised(latents: int) -> None:
    decoder = HiFiGAN(CONFIG)
    decoder.build()

    wave_BS = decoder(np.zeros((1, latents, 16), np.float32), np.zeros((1, 8), np.float32))

    assert wave_BS.shape == (1, samples_of(latents))
    assert samples_of(latents) == int(samples_of(tf.constant(latents)))
    # 1024 samples at 22.05 kHz for each latent, at 24 kHz; the last frame is cut.
    assert abs(samples_of(latents) - latents * 1024 * 24000 / 22050) < 256


def test_a_constant_stays_constant_at_the_output_rate() -> None:
    latents_BND = np.full((2, 7, 3), 1.25, np.float32)

    np.testing.assert_allclose(to_output_rate(latents_BND), 1.25, atol=1e-6)


@pytest.mark.parametrize("dilation", [1, 3, 5])
def test_the_gradient_of_a_dilated_convolution_is_that_of_its_definition(dilation: int) -> None:
    conv = Conv(3, 2, 7, dilation)
    conv.build()
    x_B1TC = tf.constant(np.random.default_rng(0).normal(size=(2, 1, 40, 3)).astype(np.float32))
    weight_B1TC = tf.constant(np.random.default_rng(1).normal(size=(2, 1, 40, 2)).astype(np.float32))

    def by_definition(x: tf.Tensor) -> tf.Tensor:
        reach = 3 * dilation
        padded = tf.pad(x, [[0, 0], [0, 0], [reach, reach], [0, 0]])
        return tf.add_n([padded[:, :, dilation * tap : dilation * tap + 40] @ conv.kernel[0, tap] for tap in range(7)])

    wanted = [x_B1TC, conv.kernel.value]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x_B1TC)
        ours = tf.reduce_sum(conv(x_B1TC, training=True) * weight_B1TC)
        defined = tf.reduce_sum(by_definition(x_B1TC) * weight_B1TC)

    for mine, theirs in zip(tape.gradient(ours, wanted), tape.gradient(defined, wanted), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
