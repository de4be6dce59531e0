"""What the GPT promises beyond the layer contract: padding, dropout, alignment, and that it can learn."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.errors import DataError, DeviceError
from myxtts.models.codebook import Codebook
from myxtts.models.gpt import GPT, alignment_loss, gpt_losses
from myxtts.models.initialise import audio_from_codebook, initialise_from_scratch
from myxtts.models.layers import Linear, dropout, gelu_tanh, layer_norm
from myxtts.synthesis.generation import Generator
from myxtts.synthesis.speech_model import TextBatch
from tests.contract.gpt_cases import HEADS, TINY, built_gpt, gpt_inputs


def test_padding_of_the_text_changes_nothing() -> None:
    gpt, inputs = built_gpt(), gpt_inputs([12, 9])
    padded = {**inputs, "text": np.pad(inputs["text"], [(0, 0), (0, 6)], constant_values=11)}

    plain, longer = (
        gpt(one["latents"], one["text"], one["text_lengths"], one["codes"], one["lengths"]) for one in (inputs, padded)
    )

    np.testing.assert_allclose(plain.audio_logits_BTV, longer.audio_logits_BTV, atol=1e-5)
    np.testing.assert_allclose(plain.text_logits_BUV[1, :10], longer.text_logits_BUV[1, :10], atol=1e-5)


def test_padding_changes_no_loss() -> None:
    gpt, inputs = built_gpt(), gpt_inputs([12, 9])
    padded = {
        **inputs,
        "text": np.pad(inputs["text"], [(0, 0), (0, 6)], constant_values=11),
        "codes": np.pad(inputs["codes"], [(0, 0), (0, 5)], constant_values=3),
    }
    totals = []
    for one in (inputs, padded):
        batch = [tf.constant(one[name]) for name in ("text", "text_lengths", "codes", "lengths")]
        output = gpt(one["latents"], *batch, alignment_heads=HEADS)
        alignment = tf.ones_like(batch[2])
        totals.append(gpt_losses(gpt, output, *batch, alignment_BT=alignment, alignment_weight=0.5))

    np.testing.assert_allclose(totals[0], totals[1], atol=1e-5)


def test_a_later_code_changes_no_earlier_prediction() -> None:
    gpt, inputs = built_gpt(), gpt_inputs([12])
    changed = inputs["codes"].copy()
    changed[0, 8] = (changed[0, 8] + 1) % TINY.audio_codes
    first, second = (
        gpt(inputs["latents"], inputs["text"], inputs["text_lengths"], codes, inputs["lengths"]).audio_logits_BTV
        for codes in (inputs["codes"], changed)
    )

    np.testing.assert_allclose(first[:, :9], second[:, :9], atol=1e-6)
    assert np.abs(first[:, 9:] - second[:, 9:]).max() > 1e-4


def test_too_long_text_and_too_many_codes_are_refused_by_name() -> None:
    gpt = built_gpt()

    with pytest.raises(DataError, match="403 tokens"):
        gpt.text_inputs(tf.zeros([1, 403], tf.int32), tf.constant([403]))
    with pytest.raises(DataError, match="606 audio codes"):
        gpt.audio_inputs(tf.zeros([1, 606], tf.int32), tf.constant([606]))


@pytest.mark.parametrize("stops", [1, 3, 4, 6])
def test_the_longest_clip_has_a_position_for_each_of_its_stop_targets(stops: int) -> None:
    gpt = GPT(dataclasses.replace(TINY, audio_stop_targets=stops))
    gpt.build()
    longest = gpt.config.max_clip_codes

    inputs = gpt.audio_inputs(tf.zeros([1, longest], tf.int32), tf.constant([longest]))

    assert gpt.embed_audio(inputs).shape[1] == longest + stops
    with pytest.raises(DataError, match=f"{longest + 1} audio codes"):
        gpt.audio_inputs(tf.zeros([1, longest + 1], tf.int32), tf.constant([longest + 1]))


def test_dropout_follows_its_seed_and_drops_its_share() -> None:
    ones, seed = tf.ones([200, 503]), tf.constant([1, 2])
    dropped = dropout(ones, 0.1, seed, 3).numpy()

    assert np.mean(dropped == 0) == pytest.approx(26 / 256, abs=0.005)
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)
    np.testing.assert_array_equal(dropped, dropout(ones, 0.1, seed, 3))
    assert np.any(dropped != dropout(ones, 0.1, seed, 4).numpy())
    assert np.any(dropped != dropout(ones, 0.1, tf.constant([1, 3]), 3).numpy())
    assert dropout(ones, 0.1, None, 3) is ones
    assert dropout(ones, 0.0, seed, 3) is ones


@pytest.mark.parametrize("name", ["gelu", "layer_norm"])
def test_written_out_gradients_are_those_of_autodiff(name: str) -> None:
    x, gamma, beta = tf.random.stateless_normal([3, 5, 8], [1, 1]), tf.range(1.0, 9.0), tf.range(8.0)
    if name == "gelu":
        arguments = [x]
        ours, plain = gelu_tanh, lambda x: tf.nn.gelu(x, approximate=True)
    else:
        arguments = [x, gamma, beta]
        ours = layer_norm
        plain = lambda x, gamma, beta: tf.nn.batch_normalization(  # noqa: E731
            x, *tf.nn.moments(x, [-1], keepdims=True), beta, gamma, 1e-5
        )
    results = []
    for function in (ours, plain):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            y = function(*arguments)
            loss = tf.reduce_sum(y * tf.sin(tf.reshape(tf.range(120.0), [3, 5, 8])))
        results.append([y, *tape.gradient(loss, arguments)])

    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_row_whose_text_is_hidden_teaches_the_heads_nothing() -> None:
    attention = tf.nn.softmax(tf.random.stateless_normal([2, 6, 5], [1, 2]))
    token_BT = tf.constant([[0, 0, 1, 1, 2, 2]] * 2)
    code_lengths = tf.constant([6, 6])

    both = alignment_loss([attention], token_BT, tf.constant([3, 0]), code_lengths)
    first = alignment_loss([attention[:1]], token_BT[:1], tf.constant([3]), code_lengths[:1])

    assert float(both) == pytest.approx(float(first))
    assert float(alignment_loss([attention], token_BT, tf.constant([0, 0]), code_lengths)) == 0.0


def test_alignment_loss_is_least_where_the_attention_is_on_the_token() -> None:
    token_BT = tf.constant([[0, 1, 2, 3]])
    lengths = tf.constant([4]), tf.constant([4])

    def attention(shift: int) -> tf.Tensor:
        target = 0.8 * tf.one_hot(token_BT + 1 + shift, 6) + 0.1 * (
            tf.one_hot(token_BT + shift, 6) + tf.one_hot(token_BT + 2 + shift, 6)
        )
        return target + 0.01

    right, off_by_one = (float(alignment_loss([attention(shift)], token_BT, *lengths)) for shift in (0, 1))

    assert right < off_by_one - 0.5


def test_half_precision_on_a_cpu_is_refused_before_it_ends_the_process() -> None:
    layer = Linear(4, 4, dtype=keras.DTypePolicy("mixed_bfloat16"))

    with pytest.raises(DeviceError, match="bfloat16"):
        layer.build()


def test_initialisation_has_the_asked_for_spread_and_the_codebooks_neighbours() -> None:
    config = ModelConfig(model_size="tiny", gpt_width=128, gpt_heads=4, gpt_layers=1)
    gpt = built_gpt(config)
    codebook = Codebook(config.audio_codes, 8)
    codebook.build()
    vectors = np.random.default_rng(0).normal(size=(config.audio_codes, 8))
    vectors[7] = vectors[3] + 1e-3
    codebook.vectors_KC.assign(vectors)

    initialise_from_scratch(gpt, seed=1)
    audio_from_codebook(gpt, codebook, seed=1)

    std = {weight.path: float(np.std(weight.value)) for weight in gpt.weights}
    assert std["gpt/text_embedding/table"] == pytest.approx(0.2, rel=0.05)
    assert std["gpt/block_1/qkv/kernel"] == pytest.approx(128**-0.5, rel=0.05)
    assert std["gpt/block_1/down/kernel"] == pytest.approx(0.5 * 512**-0.5, rel=0.05)
    assert std["gpt/audio_embedding/table"] == pytest.approx(0.2, rel=0.05)
    table = gpt.audio_embedding.table.numpy()
    assert np.linalg.norm(table[7] - table[3]) < 0.01 * np.linalg.norm(table[7] - table[4])


class Overfitted:
    """A GPT that is overfitted to four utterances, with supervised attention."""

    def __init__(self) -> None:
        config = ModelConfig(
            model_size="tiny",
            text_vocab=40,
            audio_codes=64,
            gpt_layers=3,
            gpt_width=64,
            gpt_heads=4,
            conditioning_latents=4,
            dropout=0.0,
        )
        random = np.random.default_rng(5)
        self.gpt = GPT(config)
        self.gpt.build()
        initialise_from_scratch(self.gpt, seed=0)
        self.lengths = np.array([30, 24, 27, 21], np.int32)
        self.text_lengths = np.array([10, 8, 9, 7], np.int32)
        self.text = random.integers(4, 40, (4, 10)).astype(np.int32)
        self.codes = random.integers(0, 64, (4, 30)).astype(np.int32)
        self.latents = random.normal(size=(4, 4, 64)).astype(np.float32)
        self.alignment = np.minimum(np.arange(30)[None] // 3, self.text_lengths[:, None] - 1).astype(np.int32)
        self.losses = self._learn(220)

    def _learn(self, steps: int) -> list[tuple[float, ...]]:
        weights = self.gpt.trainable_weights
        optimiser = keras.optimizers.AdamW(2e-3)
        optimiser.build(weights)
        batch = [tf.constant(value) for value in (self.text, self.text_lengths, self.codes, self.lengths)]

        @tf.function(autograph=False)
        def step() -> tuple[tf.Tensor, ...]:
            with tf.GradientTape() as tape:
                output = self.gpt(self.latents, *batch, alignment_heads=HEADS)
                losses = gpt_losses(
                    self.gpt, output, *batch, alignment_BT=tf.constant(self.alignment), alignment_weight=0.5
                )
            optimiser.apply(tape.gradient(losses.total, [weight.value for weight in weights]), weights)
            return tuple(losses)

        return [tuple(float(value) for value in step()) for _ in range(steps)]


@pytest.fixture(scope="module")
def overfitted() -> Overfitted:
    return Overfitted()


def test_four_utterances_are_overfitted(overfitted: Overfitted) -> None:
    assert overfitted.losses[-1][-1] > 0.99


def test_greedy_generation_gives_the_learnt_codes_back_and_stops(overfitted: Overfitted) -> None:
    spoken = Generator(overfitted.gpt).generate(
        TextBatch(
            overfitted.latents,
            overfitted.text,
            overfitted.text_lengths,
            sampling=Sampling(temperature=0.0),
            max_codes=60,
        )
    )

    assert spoken.stopped_B.all()
    np.testing.assert_array_equal(spoken.lengths_B, overfitted.lengths)
    for row, length in enumerate(overfitted.lengths):
        np.testing.assert_array_equal(spoken.codes_BN[row, :length], overfitted.codes[row, :length])


def test_supervised_heads_tell_which_token_is_spoken(overfitted: Overfitted) -> None:
    spoken = Generator(overfitted.gpt, alignment_heads=HEADS).generate(
        TextBatch(
            overfitted.latents,
            overfitted.text,
            overfitted.text_lengths,
            sampling=Sampling(temperature=0.0),
            max_codes=60,
        )
    )

    for row, length in enumerate(overfitted.lengths):
        near = np.abs(spoken.spoken_token_BN[row, :length] - overfitted.alignment[row, :length]) <= 1
        assert near.mean() > 0.95
