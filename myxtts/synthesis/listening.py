"""Whose voice: reference clips, a speaker of the voice or saved latents become what the GPT and decoder are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import tensorflow as tf

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import SynthesisError
from myxtts.models.reference_mel import reference_mel
from myxtts.synthesis import references
from myxtts.synthesis.loaded_voice import Voice
from myxtts.synthesis.references import VoiceLatents

Reference = str | Path | VoiceLatents | np.ndarray
"""A clip's file, a file of saved latents, latents, or samples at 22,050 a second."""


class Listener:
    """Hears references for one voice, each of them once."""

    def __init__(self, voice: Voice, device: str | None) -> None:
        self._voice = voice
        self._device = device
        self._mel = reference_mel(voice.config.model, voice.parts.dvae if "dvae" in voice.names else None)
        self._heard: dict[Any, VoiceLatents] = {}

    def latents(
        self, reference: Reference | Sequence[Reference] | None, *, speaker: str | None, language: str
    ) -> VoiceLatents:
        if isinstance(reference, VoiceLatents):
            return reference
        given = _as_list(reference)
        references.refuse_both(given, speaker)
        if len(given) == 1 and isinstance(given[0], (str, Path)):
            path = Path(given[0])
            if path.suffix == references.LATENTS_SUFFIX:
                model = self._voice.config.model
                shape_LD = (model.conditioning_latents, model.gpt_width)
                return references.load_latents(path, self._voice.digest, shape_LD)
        waves = [_reference_wave(one) for one in given]
        if not waves:
            one = references.choose_speaker(self._voice.speakers, speaker, language)
            waves = [references.checked_reference(one.wave.astype(np.float32) / 32768.0, one.name)]
        key = tuple(hash(wave.tobytes()) for wave in waves)
        if key not in self._heard:
            self._heard[key] = self._encode(waves)
        return self._heard[key]

    def forget(self) -> None:
        self._heard.clear()

    def _encode(self, waves: Sequence[np.ndarray]) -> VoiceLatents:
        """The mean over windows as long as training's, as XTTS v2 does it."""
        cut = references.windows(waves, self._voice.reference_seconds)
        lengths_B = np.array([len(part) for part in cut], np.int32)
        wave_BS = np.zeros((len(cut), int(lengths_B.max())), np.float32)
        for row, part in enumerate(cut):
            wave_BS[row, : len(part)] = part
        with tf.device(self._device):
            mel_BTM, mel_lengths_B = self._mel(wave_BS, lengths_B)
            latents_BLD = self._voice.parts.conditioning(mel_BTM, mel_lengths_B).numpy()
            speaker_V = self._speaker_vector(waves) if "speaker_encoder" in self._voice.names else None
        return VoiceLatents(np.ascontiguousarray(latents_BLD.mean(0), np.float32), speaker_V)

    def _speaker_vector(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        from myxtts.models.speaker_encoder import SAMPLE_RATE as SPEAKER_RATE

        vectors = [
            self._voice.parts.speaker_encoder(
                tf.constant(soxr.resample(wave, SAMPLE_RATE, SPEAKER_RATE).astype(np.float32)[None])
            )[0].numpy()
            for wave in waves
        ]
        return np.asarray(np.mean(vectors, axis=0), np.float32)


def _as_list(reference: Reference | Sequence[Reference] | None) -> list[Reference]:
    if reference is None:
        return []
    return [reference] if isinstance(reference, (str, Path, np.ndarray, VoiceLatents)) else list(reference)


def _reference_wave(reference: Reference) -> np.ndarray:
    if isinstance(reference, VoiceLatents):
        raise SynthesisError("saved latents cannot be mixed with clips", hint="give the clips, or the latents alone")
    if isinstance(reference, np.ndarray):
        return references.checked_reference(reference, "wave")
    if Path(reference).suffix == references.LATENTS_SUFFIX:
        raise SynthesisError(f"{reference} cannot be mixed with clips", hint="give the clips, or the saved voice alone")
    return references.read_reference(reference)
