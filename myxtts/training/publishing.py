"""What a voice folder gets from the corpus it was trained on: a clip of each speaker, and what speaking should know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.config import XTTSConfig
from myxtts.data.prepared import PreparedCorpus
from myxtts.models.gpt import AlignmentHeads
from myxtts.synthesis.references import Speaker
from myxtts.synthesis.voice import LEARNT_FROM
from myxtts.training.recipes import recipe_for
from myxtts.training.stages import GPT

MOST_SPEAKERS = 64
"""A corpus of thousands of speakers gives its first ones: a voice folder is no copy of the corpus."""
SPEAKER_SECONDS = 6.0
LONGEST_SHARE = 0.98
"""Texts longer than almost all that were trained on are split when they are spoken."""


def speakers_of(prepared: PreparedCorpus, clips: np.ndarray) -> list[Speaker]:
    """For each speaker, in the corpus's order, its training clip that comes closest to a good reference's length."""
    speaker_of_clip = np.asarray(prepared.index.speaker)[clips]
    samples = np.asarray(prepared.index.wave_samples)[clips].astype(np.int64)
    speakers = []
    for number in np.unique(speaker_of_clip)[:MOST_SPEAKERS]:
        own = np.flatnonzero(speaker_of_clip == number)
        best = own[np.argmin(np.abs(samples[own] - int(SPEAKER_SECONDS * SAMPLE_RATE)))]
        record = prepared.read(int(clips[best]))
        wave = np.array(record.wave[: int(SPEAKER_SECONDS * SAMPLE_RATE)], np.int16)
        speakers.append(Speaker(record.speaker, record.language, wave))
    return speakers


def manifest_of(
    prepared: PreparedCorpus,
    clips: np.ndarray,
    config: XTTSConfig,
    alignment_heads: AlignmentHeads,
    *,
    learnt_from: Sequence[str] = (),
) -> dict[str, Any]:
    """For the manifest of the voice: see `synthesis.voice.save_voice`.

    `learnt_from` are the clip lists that the run learnt from before: its corpus may have changed between two stages.
    """
    lists = [*learnt_from, *([prepared.clip_list] if prepared.clip_list else [])]
    tokens = np.asarray(prepared.index.text_tokens)[clips]
    return {
        "longest_tokens": int(np.quantile(tokens, LONGEST_SHARE)),
        "reference_seconds": recipe_for(config, GPT).reference_seconds,
        "alignment_heads": [[int(layer), int(head)] for layer, head in alignment_heads],
        "guided": config.training.text_dropout > 0,
        "languages": [prepared.languages[number] for number in np.unique(prepared.index.language[clips])],
        LEARNT_FROM: list(dict.fromkeys(lists)),
    }


def with_inherited(manifest: dict[str, Any], before: dict[str, Any], inherited: Sequence[str]) -> dict[str, Any]:
    """The manifest of a voice that began as another one: how codes are drawn from it, and what it spoke already."""
    if "gpt" not in inherited:
        return manifest
    kept = {"sampling": before["sampling"]} if "sampling" in before else {}
    if before.get("guided"):
        kept["guided"] = True
    # Where it is not known what the voice spoke before, what it speaks now is not known either.
    known = [*before["languages"], *manifest["languages"]] if before.get("languages") else []
    return manifest | kept | {"languages": list(dict.fromkeys(known))}
