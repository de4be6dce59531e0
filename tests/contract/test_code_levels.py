"""Codes of several levels: numbers and their digits, the codebooks behind them, and a GPT that speaks them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.errors import ConfigError
from myxtts.models.code_levels import CodeLevels
from myxtts.models.codebook import Codebook
from myxtts.models.generation import Generator
from myxtts.models.gpt import GPT, gpt_losses
from myxtts.models.initialise import audio_from_codebook, initialise_from_scratch
from tests.contract.gpt_cases import HEADS, TINY, built_gpt, gpt_inputs, voice_and_text

LEVELS = replace(TINY, code_levels=3)
GREEDY = Sampling(temperature=0.0)
LIVELY = Sampling(temperature=1.0, top_k=0, top_p=0.95, repetition_penalty=1.2)


def made_codebook(config: ModelConfig, width: int = 8, seed: int = 0) -> Codebook:
    codebook = Codebook(config.audio_codes, width, levels=config.code_levels)
    codebook.build()
    random = np.random.default_rng(seed)
    for number, level in enumerate(codebook.levels):
        level.vectors_KC.assign(random.normal(0.0, 0.3**number, level.vectors_KC.shape))
    return codebook


@pytest.fixture(scope="module")
def gpt() -> GPT:
    made = built_gpt(LEVELS)
    initialise_from_scratch(made, seed=3)
    audio_from_codebook(made, made_codebook(LEVELS), seed=3)
    return made


@pytest.fixture(scope="module")
def generator(gpt: GPT) -> Generator:
    return Generator(gpt, alignment_heads=HEADS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_code_is_its_digits_and_start_and_stop_lie_behind_all_codes(count: int) -> None:
    levels = CodeLevels(replace(TINY, audio_codes=4, code_levels=count))

    codes = np.arange(levels.codes)
    digits = levels.digits(codes)

    assert levels.codes == 4**count
    assert len(digits) == count
    np.testing.assert_array_equal(levels.code(digits), codes)
    assert all(digit.min() == 0 and digit.max() == 3 for digit in digits)
    assert levels.digits(levels.start) == [4] + [0] * (count - 1)
    assert levels.digits(levels.stop) == [5] + [0] * (count - 1)


def test_codes_beyond_what_a_number_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="--code-levels is 7"):
        ModelConfig(model_size="tiny", audio_codes=1024, code_levels=7)


def test_six_levels_of_1024_entries_are_read_back_as_they_were_found() -> None:
    config = replace(TINY, audio_codes=1024, code_levels=6)
    codebook = made_codebook(config)
    latents = tf.random.stateless_normal([2, 5, codebook.width], [1, 2])

    nearest, codes = codebook.quantise(latents)

    assert int(tf.reduce_max(codes)) > 2**50
    np.testing.assert_allclose(codebook.look_up(codes), nearest, atol=1e-5)
    levels = CodeLevels(config)
    np.testing.assert_array_equal(levels.code(levels.digits(codes)), codes)


def test_each_level_says_what_those_before_it_left() -> None:
    codebook = made_codebook(replace(TINY, audio_codes=32, code_levels=3))
    latents = np.random.default_rng(1).normal(size=(4, 50, 8)).astype(np.float32)

    nearest, codes = codebook.quantise(latents)

    np.testing.assert_allclose(codebook.look_up(codes), nearest, atol=1e-6)
    left = latents
    errors = [np.mean(left**2)]
    for digits, level in zip(
        CodeLevels(replace(TINY, audio_codes=32, code_levels=3)).digits(codes), codebook.levels, strict=True
    ):
        distance = np.sum((left[:, :, None] - level.vectors_KC.numpy()) ** 2, -1)
        np.testing.assert_array_equal(digits, distance.argmin(-1))
        left = left - level.vectors_KC.numpy()[digits.numpy()]
        errors.append(np.mean(left**2))
    assert errors == sorted(errors, reverse=True)
    np.testing.assert_allclose(latents - left, nearest, atol=1e-5)


def test_latents_are_drawn_to_what_every_level_says() -> None:
    codebook = made_codebook(replace(TINY, audio_codes=32, code_levels=2))
    latents = tf.random.stateless_normal([2, 5, codebook.width], [3, 4])
    nearest, codes = codebook.quantise(latents)
    left_by_first = latents - tf.gather(codebook.vectors_KC, codes // 32)
    left_by_both = latents - nearest

    with tf.GradientTape() as tape:
        tape.watch(latents)
        distance = codebook.distance(latents, codes)

    expected = tf.reduce_mean(left_by_first**2 + left_by_both**2, axis=-1)
    np.testing.assert_allclose(distance, expected, rtol=1e-5)
    pull = 2.0 * (left_by_first + left_by_both) / codebook.width
    np.testing.assert_allclose(tape.gradient(distance, latents), pull, atol=1e-6)


def test_every_level_follows_the_data_and_two_say_more_than_one() -> None:
    random = np.random.default_rng(2)
    latents = tf.constant(random.normal(size=(8, 64, 8)), tf.float32)
    valid = tf.ones([8, 64], tf.bool)
    left = {}
    for count in (1, 2):
        codebook = Codebook(16, 8, levels=count)
        codebook.build()
        for step in range(120):
            _, codes = codebook.quantise(latents)
            codebook.update(latents, codes, valid, tf.constant(step < 5))
        nearest, _ = codebook.quantise(latents)
        left[count] = float(tf.reduce_mean((latents - nearest) ** 2))
        assert float(codebook.usage()) > 0.9

    assert left[2] < 0.75 * left[1]


def test_usage_is_that_of_the_level_that_collapsed() -> None:
    codebook = made_codebook(replace(TINY, audio_codes=16, code_levels=2))
    for level in codebook.levels:
        level.idle_K.assign(np.zeros(16))
    assert float(codebook.usage()) == 1.0

    codebook.levels[1].idle_K.assign(np.where(np.arange(16) < 15, 1e6, 0.0))

    assert float(codebook.usage()) == pytest.approx(1 / 16)


def test_cached_generation_is_what_the_teacher_forced_pass_says_at_every_level(gpt: GPT, generator: Generator) -> None:
    latents, text, lengths = voice_and_text(3)
    made = generator.generate(latents, text, lengths, sampling=GREEDY, min_codes=60, max_codes=60)

    output = gpt(latents, text, lengths, made.codes_BN, made.lengths_B)
    digits = gpt.levels.digits(tf.constant(made.codes_BN))
    coarse = output.audio_logits_BTV.numpy()[:, :60, : TINY.audio_codes]
    finer = gpt.finer_logits(output.latents_BTD[:, :60], digits)

    np.testing.assert_array_equal(digits[0], coarse.argmax(-1))
    for found, logits in zip(digits[1:], finer, strict=True):
        assert len(np.unique(found)) > 1
        np.testing.assert_array_equal(found, logits.numpy().argmax(-1))
    np.testing.assert_allclose(made.latents_BND, output.latents_BTD[:, :60], atol=1e-4)


def test_guidance_holds_for_every_digit(gpt: GPT, generator: Generator) -> None:
    latents, text, lengths = voice_and_text(2)
    sampling = replace(GREEDY, guidance=2.5)
    made = generator.generate(latents, text, lengths, sampling=sampling, min_codes=30, max_codes=30)

    digits = gpt.levels.digits(tf.constant(made.codes_BN))
    logits = []
    for spoken in (lengths, np.zeros_like(lengths)):
        hidden = gpt(latents, text, spoken, made.codes_BN, made.lengths_B).latents_BTD[:, :30]
        logits.append(gpt.finer_logits(hidden, digits))
    for found, told, untold in zip(digits[1:], *logits, strict=True):
        np.testing.assert_array_equal(found, np.argmax(untold + 2.5 * (told - untold), -1))


def test_a_row_of_a_batch_and_a_streamed_one_are_what_they_are_alone(generator: Generator) -> None:
    latents, text, lengths = voice_and_text(2)
    options = {"sampling": LIVELY, "min_codes": 25, "max_codes": 25}
    together = generator.generate(latents, text, lengths, seeds=[4, 5], **options)
    alone = generator.generate(latents[1:], text[1:, : lengths[1]], lengths[1:], seeds=5, **options)
    parts = list(generator.stream(latents[1:], text[1:], lengths[1:], seeds=5, chunk=7, **options))

    np.testing.assert_array_equal(alone.codes_BN[0], together.codes_BN[1])
    np.testing.assert_array_equal(np.concatenate([part.codes_BN for part in parts], 1)[0], together.codes_BN[1])
    assert together.codes_BN.max() < generator.gpt.levels.codes


def test_what_is_read_of_a_code_is_its_vector_seen_through_one_matrix(gpt: GPT) -> None:
    codebook = made_codebook(LEVELS)
    codes = tf.constant(np.random.default_rng(5).integers(0, gpt.levels.codes, (1, 200)), tf.int32)
    read, vectors = gpt.read_codes(codes)[0].numpy(), codebook.look_up(codes)[0].numpy()

    read, vectors = read - read.mean(0), vectors - vectors.mean(0)
    matrix = np.linalg.lstsq(vectors, read, rcond=None)[0]

    assert np.abs(vectors @ matrix - read).max() < 0.02 * np.abs(read).max()


def test_a_gpt_refuses_codebooks_of_another_number() -> None:
    with pytest.raises(ConfigError, match="2 codebooks of 20 entries, the GPT speaks 3 of 20"):
        audio_from_codebook(built_gpt(LEVELS), made_codebook(replace(TINY, code_levels=2)), seed=0)


def test_the_finer_digits_are_learnt_and_padding_does_not_count(gpt: GPT) -> None:
    inputs = gpt_inputs([9, 4])
    codes = np.random.default_rng(6).integers(0, gpt.levels.codes, (2, 9)).astype(np.int32)
    text = inputs["text"], inputs["text_lengths"]
    output = gpt(inputs["latents"], *text, codes, inputs["lengths"])

    def losses(wanted: np.ndarray) -> tuple[float, float]:
        found = gpt_losses(gpt, output, *text, wanted, inputs["lengths"])
        return float(found.audio), float(found.finer)

    behind_the_end, last_digit = codes.copy(), codes.copy()
    behind_the_end[1, 4:] = 0
    last_digit[0, 3] = codes[0, 3] // 20 * 20 + (codes[0, 3] + 1) % 20

    assert losses(behind_the_end) == pytest.approx(losses(codes))
    assert losses(last_digit)[0] == pytest.approx(losses(codes)[0])
    assert abs(losses(last_digit)[1] - losses(codes)[1]) > 1e-3
