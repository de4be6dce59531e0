"""References: clips of the speaker to clone, the speakers that a voice folder has, and latents saved for later.

A reference is encoded once into `VoiceLatents`, which is all that speaking needs; `save_latents` keeps them in a
safetensors file with the digest of the weights that made them, because they mean nothing to other weights. Reads and
checks; encoding is the runtime's (`myxtts.synthesis.speech_model`). No TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from myxtts.audio.io import read_audio
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import DataError, SynthesisError
from myxtts.files import make_folder, replacing, write_safetensors, writing
from myxtts.monitoring.terminal import escaped
from myxtts.synthesis.joining import trim_silence
from myxtts.text.languages import find_language

SPEAKERS_FILE = "speakers.safetensors"
LATENTS_SUFFIX = ".safetensors"
LEAST_REFERENCE_SECONDS = 0.5
MOST_REFERENCE_SECONDS = 30.0
"""More adds nothing and costs time; XTTS v2 reads as much."""
READ_SECONDS = 2 * MOST_REFERENCE_SECONDS
"""Of a reference's file, however long it is: silence before the speech may take half of it."""
_FORMAT = "myxtts-voice-latents-1"
_SPEAKERS_FORMAT = "myxtts-speakers-1"


@dataclass(frozen=True)
class VoiceLatents:
    """A reference as the model reads it."""

    latents_LD: NDArray[np.float32]
    speaker_V: NDArray[np.float32] | None
    """The speaker vector; None for voices without a trained decoder."""


@dataclass(frozen=True)
class Speaker:
    """A speaker of the training corpus with a few seconds of its speech."""

    name: str
    language: str
    wave: NDArray[np.int16]
    """At 22,050 samples a second."""


Reference = str | Path | VoiceLatents | np.ndarray
"""A clip's file, a file of saved latents, latents, or samples at 22,050 a second."""


def as_list(reference: Reference | Sequence[Reference] | None) -> list[Reference]:
    if reference is None:
        return []
    given = [reference] if isinstance(reference, (str, Path, np.ndarray, VoiceLatents)) else list(reference)
    if not given:
        raise SynthesisError("the list of reference clips is empty", hint="give at least one, or leave `reference` out")
    return given


def saved_latents(given: Sequence[Reference]) -> VoiceLatents | Path | None:
    """Latents, or their file, where those are the only reference; None for clips. Raises where both are mixed."""
    saved = [
        Path(one) if isinstance(one, (str, Path)) else one
        for one in given
        if isinstance(one, VoiceLatents) or (isinstance(one, (str, Path)) and Path(one).suffix == LATENTS_SUFFIX)
    ]
    if saved and len(given) > 1:
        name = "saved latents" if isinstance(saved[0], VoiceLatents) else str(saved[0])
        raise SynthesisError(f"{name} cannot be mixed with clips", hint="give the clips, or the saved latents alone")
    return saved[0] if saved else None


def read_reference(clip: str | Path | NDArray[np.float32]) -> NDArray[np.float32]:
    """A clip at 22,050 samples a second without silence at its ends; raises `SynthesisError` if it cannot be one."""
    if isinstance(clip, np.ndarray):
        return checked_reference(clip, "wave")
    try:
        wave = read_audio(clip, SAMPLE_RATE, first_s=READ_SECONDS)
    except DataError as error:
        raise SynthesisError(f"reference {error.problem}", hint=error.hint) from error
    return checked_reference(wave, str(clip))


def checked_reference(wave: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """The samples without silence at their ends, at most 30 s; too short a clip is a `SynthesisError`."""
    trimmed = trim_silence(np.asarray(wave, np.float32), SAMPLE_RATE).wave
    seconds = len(trimmed) / SAMPLE_RATE
    if seconds < LEAST_REFERENCE_SECONDS:
        found = "only silence" if len(trimmed) == 0 else f"{seconds:.2f} s of sound"
        raise SynthesisError(
            f"reference {name} has {found}, needs at least {LEAST_REFERENCE_SECONDS} s",
            hint="give a clip of 3 to 10 seconds of clean speech",
        )
    return trimmed[: int(MOST_REFERENCE_SECONDS * SAMPLE_RATE)]


def windows(waves: Sequence[NDArray[np.float32]], window_s: float) -> list[NDArray[np.float32]]:
    """The clips in windows as long as those of training; a short rest is left out unless it is all there is."""
    length = int(window_s * SAMPLE_RATE)
    cut: list[NDArray[np.float32]] = []
    for wave in waves:
        parts = [wave[start : start + length] for start in range(0, len(wave), length)]
        cut += [part for number, part in enumerate(parts) if number == 0 or len(part) >= length // 2]
    return cut


def check_latents_name(path: Path) -> None:
    if path.suffix != LATENTS_SUFFIX:
        raise SynthesisError(
            f"--save-voice {path.name} must end in {LATENTS_SUFFIX}", hint=f"name it mine{LATENTS_SUFFIX}"
        )


def save_latents(path: Path, latents: VoiceLatents, voice_digest: str) -> None:
    """Keep latents in a file that `load_latents` reads back for the weights of the same digest."""
    check_latents_name(path)
    arrays = {"latents": latents.latents_LD}
    if latents.speaker_V is not None:
        arrays["speaker"] = latents.speaker_V
    _save(path, arrays, {"format": _FORMAT, "voice": voice_digest})


def load_latents(path: Path, voice_digest: str, shape_LD: tuple[int, int]) -> VoiceLatents:
    """Latents of a file; those of other weights are a `SynthesisError`."""
    arrays, metadata = _open(path, _FORMAT, "saved voice", "make it with --save-voice")
    speaker = arrays.get("speaker", np.zeros(0, np.float32))
    if "latents" not in arrays or any(one.dtype != np.float32 for one in arrays.values()) or speaker.ndim != 1:
        raise SynthesisError(f"{path} is no saved voice: its arrays are others", hint="make it with --save-voice")
    if metadata.get("voice") != voice_digest or arrays["latents"].shape != shape_LD:
        raise SynthesisError(
            f"{path} was made with other weights than this voice's",
            hint="make it again from the reference clip with --save-voice: training changes the latents",
        )
    return VoiceLatents(arrays["latents"], arrays.get("speaker"))


def save_speakers(folder: Path, speakers: Sequence[Speaker]) -> None:
    """Beside the voice's weights; speaking without a reference uses the first one."""
    about = [{"name": speaker.name, "language": speaker.language} for speaker in speakers]
    arrays = {f"{number:04d}": np.ascontiguousarray(speaker.wave, np.int16) for number, speaker in enumerate(speakers)}
    _save(
        folder / SPEAKERS_FILE, arrays, {"format": _SPEAKERS_FORMAT, "speakers": json.dumps(about, ensure_ascii=False)}
    )


def load_speakers(folder: Path) -> dict[str, Speaker]:
    """By name, in the order of the corpus; empty where the voice has none."""
    path = folder / SPEAKERS_FILE
    if not path.is_file():
        return {}
    arrays, metadata = _open(path, _SPEAKERS_FORMAT, "speakers file", "copy the voice folder again")
    try:
        about = [(escaped(one["name"]), escaped(one["language"])) for one in json.loads(metadata["speakers"])]
        waves = [arrays[f"{number:04d}"] for number in range(len(about))]
        if any(wave.ndim != 1 or wave.dtype != np.int16 for wave in waves):
            raise ValueError("a clip is no row of 16-bit samples")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SynthesisError(f"{path} is no speakers file: {error}", hint="copy the voice folder again") from error
    return {name: Speaker(name, language, wave) for (name, language), wave in zip(about, waves, strict=True)}


_MOST_NAMED = 20
"""Speakers in an error."""


def choose_speaker(speakers: Mapping[str, Speaker], name: str | None, language: str) -> Speaker:
    """The named one, or the first that speaks the language, or the first."""
    if name is not None and name in speakers:
        return speakers[name]
    if name is not None:
        known = ", ".join(list(speakers)[:_MOST_NAMED]) or "none"
        more = len(speakers) - _MOST_NAMED
        rest = f" and {more} more, which myxtts voices lists" if more > 0 else ""
        raise SynthesisError(
            f"this voice has no speaker {name!r}", hint=f"it has: {known}{rest}; or give --reference CLIP"
        )
    if not speakers:
        raise SynthesisError(
            "no reference was given and this voice has no speakers",
            hint="give --reference CLIP: 3 to 10 seconds of the voice to speak in",
        )
    code = find_language(language).code
    return next((one for one in speakers.values() if one.language == code), next(iter(speakers.values())))


def _save(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    with writing(path):
        make_folder(path.parent)
        with replacing(path) as part:
            write_safetensors(part, arrays, metadata)


def _open(path: Path, expected: str, what: str, cure: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise SynthesisError(f"{path} is no {what}: {error}", hint=cure) from error
    if metadata.get("format") != expected:
        raise SynthesisError(f"{path} is no {what} of this version", hint=cure)
    return arrays, metadata
