"""Reranking: a text is generated several times, and what the voice's aligner understands best is spoken.

The GPT's mistakes are chance: another seed makes others. The CTC aligner that taught it where each token is spoken can
tell how well a mel fits its text, without a recogniser. What was chosen is decoded once more with the aligner's own
alignment, since the decoder learnt to read the text at such places and the attention heads are a token off at times.
No TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from myxtts.config.parts import decoder_of
from myxtts.models.ctc_paths import end_scores, forced_paths, labels_of_codes
from myxtts.models.numpy_aligner import NumpyAligner
from myxtts.synthesis.hallucinations import HallucinationChecks, attempt_seed, generate_checked
from myxtts.synthesis.speech_model import CheckedCodes, CodeGenerator, SpeechModel, SpokenMel, TextBatch
from myxtts.synthesis.voice import Voice

logger = logging.getLogger(__name__)


class Reranker:
    """Chooses among candidates of one text. `label_of_token` is -1 for tokens without a sound."""

    def __init__(self, aligner: NumpyAligner, label_of_token: NDArray[np.int32]) -> None:
        self._aligner, self._label_of_token = aligner, label_of_token

    def best(
        self,
        model: SpeechModel,
        candidates: Sequence[CheckedCodes],
        ids: Sequence[int],
        speaker_V: NDArray[np.float32] | None,
    ) -> tuple[CheckedCodes, SpokenMel]:
        """The candidate that fits its text best, with the aligner's alignment, and its mel."""

        def spoken_mel(made: CheckedCodes) -> SpokenMel:
            mel = model.spoken_mel(made, ids, speaker_V)
            assert mel is not None, "a reranker is for voices that speak by mels"
            return mel

        mels = [spoken_mel(made) for made in candidates]
        scores = [self.score(mel.mel_TM, ids) for mel in mels] if len(mels) > 1 else [0.0]
        chosen = int(np.argmax(scores))
        made, mel = candidates[chosen], mels[chosen]
        if not len(made.spoken_token_N):
            return made, mel
        aligned = replace(made, spoken_token_N=self.alignment(mel.mel_TM, ids, len(made.codes_N)))
        return aligned, spoken_mel(aligned)

    def score(self, mel_TM: NDArray[np.float32], ids: Sequence[int]) -> float:
        """The log likelihood of the text's sounds in the mel; of mels of one text the highest is the best."""
        _, labels = self._sounds(ids)
        return float(end_scores(self._aligner.log_posteriors(mel_TM), labels)[-1])

    def alignment(self, mel_TM: NDArray[np.float32], ids: Sequence[int], codes: int) -> NDArray[np.int32]:
        """For every code the token of the text that is spoken then."""
        places, labels = self._sounds(ids)
        if not len(labels):
            return np.zeros(codes, np.int32)
        logp_FK = self._aligner.log_posteriors(mel_TM)
        [path_F] = forced_paths(logp_FK[None], np.array([len(logp_FK)]), [labels])
        return np.asarray(places[labels_of_codes(path_F, codes)], np.int32)

    def _sounds(self, ids: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The tokens that make a sound, by their place in the text, and their labels."""
        labels = self._label_of_token[np.asarray(ids, np.int64)]
        places = np.flatnonzero(labels >= 0)
        return places, labels[places]


def reranker_of(voice: Voice) -> Reranker | None:
    """None for a voice without an aligner, and for one that does not speak by mels."""
    if voice.aligner is None or decoder_of(voice.manifest.parts).mel_part is None:
        return None
    labels = voice.tokenizer.spoken_labels()
    sounds = int(labels.max(initial=-1)) + 1
    if voice.aligner.labels != sounds:
        logger.warning(
            "the voice's aligner knows %d sounds and its text has %d: it cannot choose among candidates",
            voice.aligner.labels,
            sounds,
        )
        return None
    return Reranker(voice.aligner, labels)


def generate_candidates(
    generator: CodeGenerator,
    texts: TextBatch,
    count: int,
    *,
    checks: HallucinationChecks | None,
    last_sounding: Sequence[int],
) -> list[list[CheckedCodes]]:
    """For each text up to `count` generations without a fault; the first has the text's own seed.

    Where all have one, the best of `checks.retries` more attempts.
    """
    if count == 1:
        return [[made] for made in generate_checked(generator, texts, checks=checks, last_sounding=last_sounding)]
    seeds = texts.row_seeds()
    rows = [row for row in range(len(texts)) for _ in range(count)]
    many = texts.repeated(rows, [attempt_seed(seed, number) for seed in seeds for number in range(count)])
    once = None if checks is None else checks.once()
    made = generate_checked(generator, many, checks=once, last_sounding=[last_sounding[row] for row in rows])
    groups = [made[first : first + count] for first in range(0, len(made), count)]
    good = [[one for one in group if one.fault is None] for group in groups]
    failed = [row for row, group in enumerate(good) if not group]
    if failed:
        again = texts.repeated(failed, [attempt_seed(seeds[row], count) for row in failed])
        last = [last_sounding[row] for row in failed]
        for row, one in zip(failed, generate_checked(generator, again, checks=checks, last_sounding=last), strict=True):
            good[row] = [one]
    return good
