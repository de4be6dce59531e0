"""The DVAE learns one clip, its codebook follows the data and revives, and replicas keep one codebook."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.errors import TrainingError
from myxtts.models.codebook import RECENT_UPDATES, Codebook
from myxtts.models.dvae import DVAE, code_lengths, measure_mel_stats
from myxtts.training.stages.codec import BYPASS_STEPS, COLLAPSE_CHECK_STEP, CodecStage
from tests.processes import run_program


def clip_mel(frames: int = 64) -> np.ndarray:
    """Something like speech: smooth bands that move, over a floor."""
    time, channel = np.arange(frames)[:, None], np.arange(80)[None]
    bands = sum(np.exp(-(((channel - 20 * k - 8 * np.sin(time / (5.0 + k))) / 4.0) ** 2)) for k in (1, 2, 3))
    return (6.0 * bands - 8.0)[None].astype(np.float32)


def test_one_clip_is_learnt_through_its_codes() -> None:
    keras.utils.set_random_seed(3)
    dvae = DVAE(ModelConfig(model_size="tiny", dvae_width=64, dvae_code_width=32, audio_codes=32))
    dvae.build()
    mel_BTM, lengths_B = clip_mel(), np.array([64], np.int32)
    dvae.set_mel_stats(*measure_mel_stats(mel_BTM, lengths_B))
    stage = CodecStage(dvae)
    batch = {"mel": mel_BTM, "mel_lengths": lengths_B}
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(dvae.trainable_variables)

    @tf.function(autograph=False)
    def train(step: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            terms, _, auxiliary = stage.objective(batch, seed=tf.constant([0, 0]), step=step)
            loss = tf.add_n([term.weight * term.mean for term in terms.values()])
        gradients = tape.gradient(loss, dvae.trainable_variables)
        optimizer.apply_gradients(zip(gradients, dvae.trainable_variables, strict=True))
        stage.after_update(batch, auxiliary, step=step)
        return terms["l1"].mean

    # The codebook is bypassed for 60 steps.
    first, *_ = [float(train(tf.constant(step))) for step in range(BYPASS_STEPS - 60, BYPASS_STEPS + 340)]

    error = np.abs(dvae(mel_BTM, lengths_B) - mel_BTM).mean() / float(tf.reduce_mean(dvae.mel_scale_M))
    assert error < 0.1 * first
    assert dvae.codebook_usage() > 0.3


def test_mel_statistics_ignore_padding() -> None:
    mel_BTM = np.random.default_rng(0).normal(-5.0, 2.0, (2, 50, 80)).astype(np.float32)
    mel_BTM[1, 20:] = 99.0

    mean_M, deviation_M = measure_mel_stats(mel_BTM, np.array([50, 20], np.int32))

    valid = np.concatenate([mel_BTM[0], mel_BTM[1, :20]])
    np.testing.assert_allclose(mean_M, valid.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(deviation_M, valid.std(axis=0), atol=1e-4)


def test_code_lengths_round_up() -> None:
    np.testing.assert_array_equal(code_lengths(np.array([1, 4, 5, 8, 61])), [1, 1, 2, 2, 16])


def built_codebook(codes: int = 16, width: int = 4) -> Codebook:
    keras.utils.set_random_seed(1)
    codebook = Codebook(codes, width)
    codebook.build()
    return codebook


def blobs(count: int, rows: int = 64, seed: int = 0) -> np.ndarray:
    """Rows around `count` centres that are far apart."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0.0, 10.0, (count, 4))
    return (centres[random.integers(0, count, rows)] + random.normal(0.0, 0.1, (rows, 4)))[None].astype(np.float32)


def follow(codebook: Codebook, latents_BNC: np.ndarray, *, bypass: bool) -> None:
    _, codes_BN = codebook.quantise(latents_BNC)
    codebook.update(latents_BNC, codes_BN, tf.ones(codes_BN.shape, tf.bool), tf.constant(bypass))


def test_while_bypassed_the_codebook_fills_with_latents() -> None:
    codebook, latents_BNC = built_codebook(), blobs(5)

    follow(codebook, latents_BNC, bypass=True)

    distance = np.abs(codebook.vectors_KC.numpy()[:, None] - latents_BNC[0][None]).sum(axis=-1).min(axis=1)
    assert distance.max() == 0.0
    assert len(np.unique(codebook.vectors_KC.numpy(), axis=0)) == 16


def test_codes_move_to_the_means_of_what_chooses_them() -> None:
    codebook = built_codebook(codes=64)
    for seed in range(60):
        follow(codebook, blobs(8, rows=256, seed=seed), bypass=seed < 2)

    latents_BNC = blobs(8, rows=256, seed=1000)
    nearest_BNC, _ = codebook.quantise(latents_BNC)
    # The rows lie 0.08 from their centres on average; a code nearer than that has been chosen among several.
    assert np.abs(nearest_BNC - latents_BNC).mean() < 0.08
    assert codebook.usage() == 1.0


def test_a_large_codebook_averages_over_longer_and_not_before_it_has_settled() -> None:
    codebook = built_codebook(codes=8192)
    latents_BNC = np.zeros((1, 8, 4), np.float32)

    def moved_after(updates: int) -> float:
        codebook.updates.assign([updates])
        codebook.counts_K.assign(np.ones(8192, np.float32))
        follow(codebook, latents_BNC, bypass=False)
        return float(codebook.counts_K.numpy().max() - 1.0)

    early, later, late = moved_after(0), moved_after(3000), moved_after(9000)
    assert early / later == pytest.approx(3.0, rel=0.01)
    assert early / late == pytest.approx(5.12, rel=0.01)


def test_a_dead_code_comes_back_to_life() -> None:
    codebook = built_codebook()
    codebook.vectors_KC.assign(np.full((16, 4), 1000.0, np.float32))

    for seed in range(150):
        follow(codebook, blobs(8, seed=seed), bypass=False)

    assert np.abs(codebook.vectors_KC.numpy()).max() < 100.0
    assert codebook.usage() > 0.4


def test_dead_codes_come_back_as_different_ones() -> None:
    codebook = built_codebook(codes=256)
    codebook.vectors_KC.assign(np.full((256, 4), 1000.0, np.float32))
    codebook.counts_K.assign(np.where(np.arange(256) == 0, 100.0, 0.01))
    codebook.sums_KC.assign(codebook.vectors_KC.numpy() * codebook.counts_K.numpy()[:, None])
    latents_BNC = blobs(8, rows=32)

    follow(codebook, latents_BNC, bypass=False)

    revived = [vector for vector in codebook.vectors_KC.numpy() if np.abs(vector).max() < 100.0]
    assert len(revived) == 32
    assert len(np.unique(revived, axis=0)) == 32


def test_a_codebook_larger_than_a_batch_is_in_use_soon_after_the_bypass() -> None:
    """Latents move while the quantiser is bypassed, so most entries are old ones when it begins."""
    codebook = built_codebook(codes=512)
    random = np.random.default_rng(0)

    def latents(centre: float) -> np.ndarray:
        return random.normal(centre, 1.0, (1, 32, 4)).astype(np.float32)

    for step in range(50):
        follow(codebook, latents(step), bypass=True)
    for _ in range(350):
        follow(codebook, latents(50.0), bypass=False)

    assert codebook.usage() > 0.8


def test_a_collapsed_codebook_shows_in_its_usage() -> None:
    codebook = built_codebook(codes=64)
    codes_BN = np.zeros((1, 8), np.int32)
    latents_BNC = np.zeros((1, 8, 4), np.float32)

    for _ in range(RECENT_UPDATES + 1):
        codebook.update(latents_BNC, codes_BN, tf.ones([1, 8], tf.bool), tf.constant(False))

    assert codebook.usage() == 1 / 64


def stage_after_one_update(codes: list[int], audio_codes: int = 64) -> CodecStage:
    dvae = DVAE(ModelConfig(model_size="tiny", dvae_width=32, dvae_code_width=4, audio_codes=audio_codes))
    dvae.build()
    stage = CodecStage(dvae)
    auxiliary = {"latents": np.zeros((1, len(codes), 4), np.float32), "codes": np.array([codes], np.int32)}
    lengths = np.array([4 * len(codes)], np.int32)
    stage.after_update({"mel_lengths": lengths}, auxiliary, step=tf.constant(BYPASS_STEPS))
    return stage


def test_training_through_one_code_ends_with_its_reason() -> None:
    stage = stage_after_one_update([5] * 8)

    stage.check_health(COLLAPSE_CHECK_STEP - 1)
    with pytest.raises(TrainingError, match=r"codebook has collapsed: 2% of its codes .* step 400") as caught:
        stage.check_health(COLLAPSE_CHECK_STEP)
    assert "--learning-rate" in caught.value.hint


def test_training_through_several_codes_goes_on() -> None:
    stage_after_one_update(list(range(8))).check_health(COLLAPSE_CHECK_STEP)


def test_a_large_codebook_may_fill_up_slowly_but_not_collapse_either() -> None:
    stage_after_one_update(list(range(60)), audio_codes=8192).check_health(COLLAPSE_CHECK_STEP)
    with pytest.raises(TrainingError, match="codebook has collapsed"):
        stage_after_one_update(list(range(40)), audio_codes=8192).check_health(COLLAPSE_CHECK_STEP)


def test_padding_neither_moves_nor_counts() -> None:
    one, other = built_codebook(), built_codebook()
    latents_BNC = blobs(8, rows=32)
    padded_BNC = np.concatenate([latents_BNC, np.full((1, 9, 4), 1e6, np.float32)], axis=1)
    _, codes_BN = one.quantise(padded_BNC)

    one.update(latents_BNC, codes_BN[:, :32], tf.ones([1, 32], tf.bool), tf.constant(False))
    other.update(padded_BNC, codes_BN, tf.range(41)[None] < 32, tf.constant(False))

    np.testing.assert_allclose(one.vectors_KC.numpy(), other.vectors_KC.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(one.idle_K.numpy(), other.idle_K.numpy())


def test_replicas_keep_one_codebook() -> None:
    run_program("mirrored_codebook")
