"""Reranking: a text is generated several times, and the wave in which the voice's aligner hears the text best is kept.

The GPT's mistakes are chance: another seed makes others. The CTC aligner that taught it where each token is spoken can
tell how well a wave fits its text, without a recogniser. No TensorFlow.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import resampled
from myxtts.audio.mel import DVAE_MEL
from myxtts.audio.numpy_mel import log_mel
from myxtts.models.ctc_paths import end_scores
from myxtts.models.numpy_aligner import NumpyAligner
from myxtts.synthesis.hallucinations import HallucinationChecks, attempt_seed, generate_checked
from myxtts.synthesis.litert.layout import mel_decoder_of
from myxtts.synthesis.speech_model import CheckedCodes, CodeGenerator, TextBatch, Wave
from myxtts.synthesis.voice import Voice

logger = logging.getLogger(__name__)


class Reranker:
    """Scores waves against their text."""

    def __init__(self, aligner: NumpyAligner, label_of_token: NDArray[np.int32]) -> None:
        """`label_of_token` is -1 for tokens without a sound."""
        self._aligner, self._label_of_token = aligner, label_of_token

    def score(self, wave: Wave, sample_rate: int, ids: list[int]) -> float:
        """The log likelihood of the text's sounds in the wave; of waves of the same text the highest is the best."""
        labels = self._label_of_token[np.asarray(ids, np.int64)]
        if not len(wave):
            return -np.inf
        mel_TM = log_mel(resampled(wave, sample_rate, DVAE_MEL.sample_rate), DVAE_MEL)
        return float(end_scores(self._aligner.log_posteriors(mel_TM), labels[labels >= 0])[-1])


def reranker_of(voice: Voice) -> Reranker | None:
    """None for a voice without an aligner, and for one whose speech is streamed while it is generated."""
    if voice.aligner is None or mel_decoder_of(voice.manifest.parts) is None:
        return None
    labels = voice.tokenizer.spoken_labels()
    if voice.aligner.labels != labels.max(initial=-1) + 1:
        logger.warning(
            "the voice's aligner knows %d sounds and its text has %d: it cannot choose among candidates",
            voice.aligner.labels,
            labels.max(initial=-1) + 1,
        )
        return None
    return Reranker(voice.aligner, labels)


def generate_candidates(
    generator: CodeGenerator,
    texts: TextBatch,
    count: int,
    *,
    checks: HallucinationChecks | None,
    last_sounding: list[int],
) -> list[list[CheckedCodes]]:
    """For each text up to `count` generations without a fault; the first has the text's own seed.

    Where all have one, the best of `checks.retries` more attempts.
    """
    if count == 1:
        return [[made] for made in generate_checked(generator, texts, checks=checks, last_sounding=last_sounding)]
    once = None if checks is None else checks.once()
    rows = [row for row in range(len(texts)) for _ in range(count)]
    seeds = [attempt_seed(seed, number) for seed in texts.row_seeds() for number in range(count)]
    many = texts.repeated(rows, seeds)
    made = generate_checked(generator, many, checks=once, last_sounding=[last_sounding[row] for row in rows])
    groups = [made[first : first + count] for first in range(0, len(made), count)]
    good = [[one for one in group if one.fault is None] for group in groups]
    failed = [row for row, group in enumerate(good) if not group]
    if failed:
        again = texts.repeated(failed, [attempt_seed(texts.row_seeds()[row], count) for row in failed])
        last = [last_sounding[row] for row in failed]
        for row, one in zip(failed, generate_checked(generator, again, checks=checks, last_sounding=last), strict=True):
            good[row] = [one]
    return good
