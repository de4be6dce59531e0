"""Train the base voice's aligner for longer than a run does, on speech that is varied: it chooses what is spoken.

    python -m recipes.base.train_aligner CORPUS CACHE OUT STEPS

CORPUS is prepared as a run on the base voice prepares it (into CACHE), one clip of 20 is held out, and the aligner of
the built-in voice goes on from where it is. OUT is a voice's `aligner.npz`. Prints the token error of the held-out
clips before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import N_MELS
from myxtts.config.data import DataConfig
from myxtts.data.batching import BatchSource, batches
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus
from myxtts.models.aligner import Labelled, fit
from myxtts.models.ctc_paths import error_rate, greedy_labels
from myxtts.synthesis.voice import ALIGNER_FILE, BASE, BUILT_IN, read_voice_tokenizer
from myxtts.training.alignment import ALIGNER_CLIPS, Aligner

MASKED_CHANNELS = 12
MICROPHONE = 0.15
NOISE = (0.0, 0.2, 0.5)


def varied(
    mel_BTM: NDArray[np.float32], lengths_B: NDArray[np.integer], random: np.random.Generator
) -> NDArray[np.float32]:
    """A copy with some channels hidden (SpecAugment), another microphone in every second clip, and noise."""
    made_BTM = mel_BTM.copy()
    for mel_TM, length in zip(made_BTM, lengths_B, strict=True):
        first, count = random.integers(0, N_MELS - MASKED_CHANNELS), random.integers(0, MASKED_CHANNELS)
        mel_TM[:, first : first + count] = mel_TM[:length, first : first + count].mean(0)
        if random.random() < 0.5:
            mel_TM[:length] += random.normal(0, MICROPHONE, N_MELS).astype(np.float32)
        mel_TM[:length] += random.normal(0, random.choice(NOISE), (length, N_MELS)).astype(np.float32)
    return made_BTM


def varied_batches(aligner: Aligner, source: BatchSource) -> Iterator[Labelled]:
    random = np.random.default_rng(0)
    for mel_BTM, lengths_B, labels in aligner.labelled(source):
        yield Labelled(varied(np.asarray(mel_BTM), np.asarray(lengths_B), random), lengths_B, labels)


def token_error(aligner: Aligner, prepared: PreparedCorpus, clips: NDArray[np.integer]) -> float:
    found = [(list(labels), greedy_labels(logits)) for logits, labels, _ in aligner.logits_of(prepared, clips)]
    return error_rate([wanted for wanted, _ in found], [heard for _, heard in found])


def main(corpus: str, cache: str, out: str, steps: str) -> None:
    tokenizer = read_voice_tokenizer(BUILT_IN / BASE)
    config = DataConfig(train_data=corpus, cache_dir=cache, normalise_loudness=True, trim_silence=True)
    prepared = prepare(corpus, config, None, tokenizer)
    learnt, held_out = prepared.split()
    aligner = Aligner(tokenizer)
    aligner.restore(BUILT_IN / BASE / ALIGNER_FILE)
    print(f"token error of {len(held_out)} held-out clips: {token_error(aligner, prepared, held_out):.1%}")
    source = batches(prepared, config=DataConfig(batch_size=ALIGNER_CLIPS), seed=0, clips=learnt)
    fit(aligner.network, varied_batches(aligner, source), steps=int(steps))
    source.close()
    aligner.save(Path(out))
    print(f"after {steps} steps: {token_error(aligner, prepared, held_out):.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
