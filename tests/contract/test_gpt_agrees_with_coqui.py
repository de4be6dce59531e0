"""Our GPT and conditioning encoder against numbers that Coqui's own code gave for the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.models.conditioning import Conditioning
from myxtts.models.coqui.gpt import gpt_weights
from myxtts.models.gpt import GPT, GPTOutput, gpt_losses
from myxtts.synthesis.generation import Generator
from myxtts.synthesis.speech_model import TextBatch
from tests.golden import formula
from tests.golden import gpt_case as case

TOLERANCE = 1e-4


class Loaded:
    """Both parts with Coqui's weights, what Coqui's gave, and what ours give."""

    def __init__(self) -> None:
        config = ModelConfig(
            model_size="small",
            gpt_layers=case.LAYERS,
            gpt_width=case.WIDTH,
            gpt_heads=case.HEADS,
            text_vocab=case.TEXT_VOCAB,
            audio_codes=case.AUDIO_CODES,
            max_text_tokens=case.MAX_TEXT,
            max_audio_tokens=case.MAX_AUDIO,
            text_start_token=case.TEXT_START,
            text_stop_token=case.TEXT_STOP,
            attend_text_stop=False,
            audio_stop_targets=4,
        )
        theirs, self.expected = formula.load("gpt")
        self.gpt, self.conditioning = GPT(config), Conditioning(config)
        self.gpt.build()
        self.conditioning.build()
        weights = gpt_weights(theirs, config)
        for variable in [*self.gpt.weights, *self.conditioning.weights]:
            variable.assign(weights.pop(variable.path))
        assert not weights
        self.latents_BLD = self.conditioning(tf.constant(case.mel_rows()))
        self.batch = [
            tf.constant(value) for value in (case.text_rows(), case.TEXT_LENGTHS, case.code_rows(), case.CODE_LENGTHS)
        ]

    def forward(self) -> GPTOutput:
        return self.gpt(self.latents_BLD, *self.batch)


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded()


def difference(ours: tf.Tensor, theirs: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(ours) - theirs)))


def test_conditioning_latents_agree(loaded: Loaded) -> None:
    assert difference(loaded.latents_BLD, loaded.expected["latents"]) < TOLERANCE


def test_text_and_audio_logits_of_a_padded_batch_agree(loaded: Loaded) -> None:
    output = loaded.forward()
    for row in range(2):
        text, codes = case.TEXT_LENGTHS[row] + 1, case.CODE_LENGTHS[row] + 4
        assert difference(output.text_logits_BUV[row, :text], loaded.expected["text_logits"][row, :text]) < TOLERANCE
        assert (
            difference(output.audio_logits_BTV[row, :codes], loaded.expected["audio_logits"][row, :codes]) < TOLERANCE
        )


def test_losses_agree(loaded: Loaded) -> None:
    losses = gpt_losses(loaded.gpt, loaded.forward(), *loaded.batch)

    assert difference(losses.text, loaded.expected["text_loss"]) < TOLERANCE
    assert difference(losses.audio, loaded.expected["audio_loss"]) < TOLERANCE
    assert float(losses.total) == pytest.approx(0.01 * float(losses.text) + float(losses.audio), rel=1e-6)


@pytest.mark.parametrize(("name", "penalty"), [("greedy", 1.0), ("greedy_penalised", case.PENALTY)])
def test_greedy_codes_agree_over_200_steps(loaded: Loaded, name: str, penalty: float) -> None:
    spoken = Generator(loaded.gpt).generate(
        TextBatch(
            loaded.latents_BLD[:1],
            case.text_rows()[:1],
            case.TEXT_LENGTHS[:1],
            sampling=Sampling(temperature=0.0, repetition_penalty=penalty),
            max_codes=case.STEPS,
        ),
        min_codes=case.STEPS,
    )

    np.testing.assert_array_equal(spoken.codes_BN, loaded.expected[name])


def test_generated_latents_are_those_of_coquis_second_pass(loaded: Loaded) -> None:
    """Coqui runs the whole text again to get what HiFi-GAN needs; ours come with the codes."""
    codes = case.code_rows()[:1]
    # Coqui attends to the text's stop token here, as it does whenever it speaks.
    loaded_config = loaded.gpt.config
    object.__setattr__(loaded_config, "attend_text_stop", True)
    try:
        output = loaded.gpt(loaded.latents_BLD[:1], *(value[:1] for value in loaded.batch))
    finally:
        object.__setattr__(loaded_config, "attend_text_stop", False)

    theirs = loaded.expected["decoder_latents"]
    assert theirs.shape[1] == codes.shape[1]
    assert difference(output.latents_BTD[:, : codes.shape[1]], theirs) < TOLERANCE
