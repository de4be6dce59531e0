"""The parts beside the GPT against Coqui's own outputs on the same weights (see `tools/make_golden.py`)."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig, ModelSize
from myxtts.errors import CheckpointError
from myxtts.models import dvae, hifigan, speaker_encoder
from myxtts.models.coqui.dvae import dvae_weights
from myxtts.models.coqui.hifigan import hifigan_weights
from myxtts.models.coqui.speaker import speaker_weights
from tests.golden import formula
from tests.golden.cases import DVAE, HIFIGAN, SPEAKER


def give(layer: keras.layers.Layer, weights: dict[str, np.ndarray]) -> None:
    layer.build()
    assert {weight.path for weight in layer.weights} == set(weights)
    for weight in layer.weights:
        weight.assign(weights[weight.path])


@pytest.fixture(scope="module")
def dvae_and_golden() -> tuple[dvae.DVAE, dict[str, np.ndarray]]:
    config = ModelConfig(
        model_size="tiny", dvae_width=DVAE.width, dvae_code_width=DVAE.code_width, audio_codes=DVAE.codes
    )
    state, golden = formula.load("dvae")
    layer = dvae.DVAE(config)
    give(layer, dvae_weights(state, DVAE.mel_stats()))
    return layer, golden


def test_dvae_gives_the_same_codes(dvae_and_golden: tuple[dvae.DVAE, dict[str, np.ndarray]]) -> None:
    layer, golden = dvae_and_golden

    codes_BN, code_lengths_B = layer.encode(DVAE.mel(), np.full(2, DVAE.frames, np.int32))

    np.testing.assert_array_equal(codes_BN, golden["codes"])
    np.testing.assert_array_equal(code_lengths_B, [golden["codes"].shape[1]] * 2)


def test_dvae_decodes_to_the_same_mel(dvae_and_golden: tuple[dvae.DVAE, dict[str, np.ndarray]]) -> None:
    layer, golden = dvae_and_golden

    mel_BTM = layer.decode(tf.constant(golden["codes"], tf.int32))

    np.testing.assert_allclose(mel_BTM / DVAE.mel_stats(), golden["scaled_mel"], atol=1e-4)


def test_hifigan_of_the_small_size_makes_the_same_wave() -> None:
    state, golden = formula.load("hifigan")
    layer = hifigan.HiFiGAN(ModelConfig(model_size="small"))
    give(layer, hifigan_weights(state))

    wave_BS = layer(HIFIGAN.latents(), HIFIGAN.speaker())

    assert np.std(golden["wave"]) > 0.05
    np.testing.assert_allclose(wave_BS, golden["wave"], atol=1e-3)
    assert wave_BS.shape[1] == hifigan.samples_of(HIFIGAN.count)


def test_hifigan_reads_the_older_names_of_weight_norm() -> None:
    state, _ = formula.load("hifigan")
    older = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for name, value in state.items()
    }

    assert older.keys() != state.keys()
    made, expected = hifigan_weights(older), hifigan_weights(state)
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value)


def test_speaker_encoder_gives_the_same_vector() -> None:
    state, golden = formula.load("speaker")
    layer = speaker_encoder.SpeakerEncoder(ModelConfig(model_size="small"))
    give(layer, speaker_weights(state))

    np.testing.assert_allclose(layer(SPEAKER.wave()), golden["vector"], atol=1e-4)


def test_a_missing_weight_is_named() -> None:
    state, _ = formula.load("dvae")
    del state["encoder.1.0.bias"]

    with pytest.raises(CheckpointError, match=r"encoder\.1\.0\.bias"):
        dvae_weights(state, DVAE.mel_stats())


def test_a_weight_without_a_place_is_named() -> None:
    state, _ = formula.load("speaker")
    state["layer9.extra.weight"] = np.zeros(3)

    with pytest.raises(CheckpointError, match=r"layer9\.extra\.weight"):
        speaker_weights(state)


# Coqui counts the magnitudes of weight norm beside the weights: 18 * (256 + 128 + 64 + 32) for the residual
# convolutions, and 512 + 256 + 128 + 64 for the upsampling. Ours are folded in.
FOLDED_MAGNITUDES = 9600


@pytest.mark.parametrize(("size", "coqui_parameters"), [("small", 15_075_296), ("big", 17_827_808)])
def test_hifigan_has_coquis_parameters_without_weight_norm(size: ModelSize, coqui_parameters: int) -> None:
    layer = hifigan.HiFiGAN(ModelConfig(model_size=size))
    layer.build()

    assert layer.count_params() == coqui_parameters - FOLDED_MAGNITUDES


def test_speaker_encoder_has_coquis_parameters() -> None:
    layer = speaker_encoder.SpeakerEncoder(ModelConfig(model_size="small"))
    layer.build()

    assert sum(np.prod(weight.shape) for weight in layer.trainable_variables) == 8_028_492


def test_the_tiny_dvae_is_small_enough_to_learn_on_a_cpu() -> None:
    layer = dvae.DVAE(ModelConfig(model_size="tiny"))
    layer.build()

    assert sum(np.prod(weight.shape) for weight in layer.trainable_variables) == 1_829_136
