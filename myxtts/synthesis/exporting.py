"""A voice as one folder to hand on: weights, sizes, tokenizer and speakers, and nothing of where it was trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.errors import CheckpointError
from myxtts.files import writing
from myxtts.models.weights import MANIFEST_FILE, WEIGHTS_FILE, read_arrays, read_manifest, save_arrays
from myxtts.synthesis.references import SPEAKERS_FILE
from myxtts.synthesis.voice import (
    CONFIG_FILE,
    LEARNT_ALL_CLIPS,
    TOKENIZER_FILE,
    build_parts,
    find_voice,
    learnt_all_clips,
    load_parts,
    read_voice_config,
    read_voice_tokenizer,
    voice_parts,
)

FILES = (WEIGHTS_FILE, MANIFEST_FILE, CONFIG_FILE, TOKENIZER_FILE, SPEAKERS_FILE)
"""What a voice folder holds; speakers are there only where the voice was trained with some."""
_FULL = "dvae/"
"""A code is the nearest of the DVAE's vectors, so rounding could change codes: these weights keep 32 bits."""


def export_voice(source: str | Path, out: Path, *, half: bool = False) -> Path:
    """Write the voice of a run (or of a voice folder) to `out`, load it from there, and give back its weights' path.

    `half` stores weights in 16 bits; they are computed with in 32 as before.
    """
    folder = find_voice(source)
    manifest = read_manifest(folder)
    config, tokenizer = read_voice_config(folder), read_voice_tokenizer(folder)
    arrays = read_arrays(folder)
    # Settings of the training would tell of folders on the machine that trained it.
    kept = XTTSConfig(
        model=config.model, data=DataConfig(language=config.data.language, text_frontend=tokenizer.frontend)
    )
    stored = {name: _halved(name, value) if half else value for name, value in arrays.items()}
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        kept.to_yaml(out / CONFIG_FILE)
        tokenizer.save(out / TOKENIZER_FILE)
        if (folder / SPEAKERS_FILE).is_file():
            shutil.copyfile(folder / SPEAKERS_FILE, out / SPEAKERS_FILE)
        known = {"parts": voice_parts(manifest), LEARNT_ALL_CLIPS: learnt_all_clips(folder)}
        path = save_arrays(out, stored, manifest["metadata"] | known)
        # The library writes for the owner alone; a voice to hand on is as readable as any other file here.
        path.chmod((out / CONFIG_FILE).stat().st_mode)
    _check(out, stored)
    return path


def _halved(name: str, value: NDArray[Any]) -> NDArray[Any]:
    if value.dtype != np.float32 or name.startswith(_FULL):
        return value
    if np.abs(value).max(initial=0.0) > np.finfo(np.float16).max:
        raise CheckpointError(f"{name} has values beyond the range of 16 bits", hint="export the voice without --half")
    return value.astype(np.float16)


def _check(out: Path, stored: dict[str, NDArray[Any]]) -> None:
    """Load what was written as speaking does, and compare it with what should be there."""
    built = build_parts(read_voice_config(out).model, voice_parts(read_manifest(out)))
    loaded = [variable for part in load_parts(out, built) for variable in getattr(built, part).weights]
    differing = [v.path for v in loaded if not np.array_equal(v.numpy(), stored[v.path], equal_nan=True)]
    if differing:
        raise CheckpointError(
            f"{out} does not give back what was written: {len(differing)} weights differ, first {differing[0]}",
            hint="the disk may be failing: export to another one",
        )
