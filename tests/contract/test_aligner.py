"""What the CTC network promises: padding changes nothing, the seed decides the weights, and it learns to hear."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from myxtts.models.aligner import CTCNetwork, Labelled, fit, seeded, steps_of
from myxtts.models.ctc_paths import error_rate, forced_paths, greedy_labels
from myxtts.models.numpy_aligner import NumpyAligner

LABELS = 4
FRAMES_A_SOUND = 10


def spoken(random: np.random.Generator, sounds: int) -> tuple[np.ndarray, np.ndarray]:
    """A mel in which every label is a bump in bins of its own, and the labels."""
    labels = random.integers(LABELS, size=sounds).astype(np.int32)
    mel = random.normal(0.0, 0.3, (sounds * FRAMES_A_SOUND, 80)).astype(np.float32)
    for place, label in enumerate(labels):
        first = place * FRAMES_A_SOUND
        mel[first + 2 : first + FRAMES_A_SOUND - 2, 20 * label : 20 * label + 20] += 4.0
    return mel, labels


def endless(seed: int) -> Iterator[Labelled]:
    random = np.random.default_rng(seed)
    while True:
        mels, labels = zip(*(spoken(random, 6) for _ in range(8)), strict=True)
        yield Labelled(np.stack(mels), np.full(8, len(mels[0]), np.int32), labels)


def test_padding_changes_no_logit() -> None:
    network = seeded(CTCNetwork(LABELS, width=16), 0)
    mel, _ = spoken(np.random.default_rng(1), 3)
    padded = np.pad(mel, [(0, 9), (0, 0)], constant_values=5.0)
    length = np.array([len(mel)], np.int32)

    alone, in_a_batch = network(mel[None], length), network(padded[None], length)

    frames = int(steps_of(len(mel)))
    assert alone.shape[1] == frames
    np.testing.assert_allclose(alone[0], in_a_batch[0, :frames], atol=1e-5)


def test_the_seed_decides_the_weights() -> None:
    one, same, other = (seeded(CTCNetwork(LABELS, width=16), seed) for seed in (1, 1, 2))

    assert all(np.array_equal(a, b) for a, b in zip(one.weights, same.weights, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


def test_it_learns_to_hear_and_to_align() -> None:
    network = seeded(CTCNetwork(LABELS, width=24, blocks=2), 0)

    losses = fit(network, endless(0), steps=60, learning_rate=5e-3)

    mel, lengths, labels = next(endless(9))
    logits = network(mel, lengths).numpy()
    assert losses[-1] < 0.3 * losses[0]
    assert error_rate([row.tolist() for row in labels], [greedy_labels(row) for row in logits]) < 0.1
    steps_a_sound = FRAMES_A_SOUND // 2
    for path in forced_paths(logits, steps_of(lengths), labels):
        places = np.flatnonzero(path >= 0)
        assert (np.abs(places // steps_a_sound - path[places]) <= 1).all()
        assert (places // steps_a_sound == path[places]).mean() > 0.8


def test_training_ends_with_its_batches() -> None:
    network = seeded(CTCNetwork(LABELS, width=16, blocks=1), 0)
    batches = endless(0)

    assert len(fit(network, (next(batches) for _ in range(3)), steps=10)) == 3


def test_the_numpy_network_hears_what_the_network_hears() -> None:
    network = seeded(CTCNetwork(9, width=16, blocks=2), seed=3)
    mel_TM = np.random.default_rng(0).normal(-5, 2, (51, 80)).astype(np.float32)

    logits = network(mel_TM[None], np.array([51])).numpy()[0]
    own = NumpyAligner([weight.numpy() for weight in network.weights]).log_posteriors(mel_TM)

    np.testing.assert_allclose(own, logits - np.log(np.exp(logits).sum(-1, keepdims=True)), atol=1e-4)
