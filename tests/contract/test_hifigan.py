"""HiFi-GAN's lengths, its output rate and its gradients are what they should be. That it learns: test_decoder_stage."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.hifigan import Conv, HiFiGAN, samples_of, to_output_rate
from myxtts.models.hifigan_sizes import REACH_FRAMES
from myxtts.synthesis.hifigan_stream import StreamingHiFiGAN

CONFIG = ModelConfig(model_size="tiny", gpt_width=16, gpt_heads=2, decoder_width=32, speaker_width=8)


@pytest.mark.parametrize("latents", [1, 2, 9, 43])
def test_a_wave_has_the_samples_that_are_promised(latents: int) -> None:
    decoder = HiFiGAN(CONFIG)
    decoder.build()

    wave_BS = decoder(np.zeros((1, latents, 16), np.float32), np.zeros((1, 8), np.float32))

    assert wave_BS.shape == (1, samples_of(latents))
    assert samples_of(latents) == int(samples_of(tf.constant(latents)))
    # 1024 samples at 22.05 kHz for each latent, at 24 kHz; the last frame is cut.
    assert abs(samples_of(latents) - latents * 1024 * 24000 / 22050) < 256


@pytest.mark.parametrize("most_frames", [23, 60, 1000])
@pytest.mark.parametrize("last_latents", [0, 5])
def test_a_wave_in_parts_has_the_samples_of_the_whole(most_frames: int, last_latents: int) -> None:
    decoder = HiFiGAN(CONFIG)
    decoder.build()
    rng = np.random.default_rng(0)
    latents_ND, speaker_V = rng.standard_normal((27, 16), np.float32), rng.standard_normal(8, np.float32)
    seen = []

    def run(frames_1TD: np.ndarray, speaker_1V: np.ndarray) -> np.ndarray:
        seen.append(frames_1TD.shape[1])
        return decoder.from_frames(tf.constant(frames_1TD), tf.constant(speaker_1V))[0].numpy()

    streaming = StreamingHiFiGAN(run, speaker_V, most_frames=most_frames)
    cut = 27 - last_latents
    parts = [streaming.add(latents_ND[:cut], last=not last_latents)]
    if last_latents:
        parts.append(streaming.add(latents_ND[cut:], last=True))

    whole_S = decoder(latents_ND[None], speaker_V[None])[0].numpy()
    np.testing.assert_allclose(np.concatenate(parts), whole_S, atol=2e-6)
    assert max(seen) <= most_frames + 2 * REACH_FRAMES


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
        taps = [padded[:, :, dilation * tap : dilation * tap + 40] for tap in range(7)]
        # Not `@`: the gradient of a product with a broadcast matrix ended the process on two cores (oneDNN).
        return tf.add_n([tf.tensordot(taps[tap], conv.kernel[0, tap], 1) for tap in range(7)])

    wanted = [x_B1TC, conv.kernel.value]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x_B1TC)
        ours = tf.reduce_sum(conv(x_B1TC, training=True) * weight_B1TC)
        defined = tf.reduce_sum(by_definition(x_B1TC) * weight_B1TC)

    for mine, theirs in zip(tape.gradient(ours, wanted), tape.gradient(defined, wanted), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
