"""What a voice folder gets from the corpus it was trained on: a clip of each speaker, and its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.config import XTTSConfig
from myxtts.data.prepared import PreparedCorpus
from myxtts.models.gpt import AlignmentHeads
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import Speaker
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
    trained_on: Sequence[str] = (),
) -> VoiceManifest:
    """What training on these clips says of a voice; its parts and how far it is trained are the caller's to add.

    `trained_on` are the clip lists that the run was trained on before: its corpus may have changed between two stages.
    """
    lists = [*trained_on, *([prepared.clip_list] if prepared.clip_list else [])]
    tokens = np.asarray(prepared.index.text_tokens)[clips]
    return VoiceManifest(
        longest_text_tokens=int(np.quantile(tokens, LONGEST_SHARE)),
        reference_seconds=recipe_for(config, GPT).reference_seconds,
        alignment_heads=tuple((int(layer), int(head)) for layer, head in alignment_heads),
        classifier_free_guidance=config.training.text_dropout > 0,
        languages=tuple(prepared.languages[number] for number in np.unique(prepared.index.language[clips])),
        trained_on=tuple(dict.fromkeys(lists)),
    )


def with_inherited(manifest: VoiceManifest, before: VoiceManifest, inherited: Sequence[str]) -> VoiceManifest:
    """The manifest of a voice that was fine-tuned from another one, `before`, whose `inherited` parts it took over.

    With the GPT it inherits how codes are sampled, guidance and languages.
    """
    if "gpt" not in inherited:
        return manifest
    # Where it is not known which languages the voice spoke before, they are not known now either.
    languages = dict.fromkeys([*before.languages, *manifest.languages]) if before.languages else ()
    return replace(
        manifest,
        sampling=before.sampling,
        classifier_free_guidance=before.classifier_free_guidance or manifest.classifier_free_guidance,
        languages=tuple(languages),
    )
