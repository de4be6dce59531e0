"""A voice on disk: weights of the parts that were trained, manifest, configuration, tokenizer and speakers, one folder.

Training writes one into its run (`RUN/voice`), `import-xtts` makes one of published weights, `export_voice` copies one
to hand on. Only trained parts are stored, so that an untrained decoder can never be mistaken for one that speaks.
TensorFlow is imported only where parts are built.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.model import ModelConfig
from myxtts.config.speaking import GUIDANCE, WITHOUT_ALIGNMENT, Sampling
from myxtts.errors import CheckpointError
from myxtts.files import make_folder, writing
from myxtts.models.numpy_aligner import NumpyAligner
from myxtts.models.weights import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    assign,
    read_arrays,
    read_manifest,
    save_arrays,
    save_weights,
)
from myxtts.synthesis.litert import folder as litert
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import SPEAKERS_FILE, Speaker, load_speakers
from myxtts.synthesis.voice_sizes import refuse_other_sizes
from myxtts.text.tokenizer import Tokenizer, load_tokenizer

CONFIG_FILE = "config.yaml"
TOKENIZER_FILE = "tokenizer.json"
ALIGNER_FILE = "aligner.npz"
"""The CTC aligner of its training corpus, which reranks what the voice speaks and starts that of a fine-tuning."""
VOICE_FOLDER = "voice"
FILES = (WEIGHTS_FILE, MANIFEST_FILE, CONFIG_FILE, TOKENIZER_FILE, SPEAKERS_FILE, ALIGNER_FILE)
"""What a voice folder holds; speakers and aligner are there only where the voice was trained with them."""
BUILT_IN = Path(__file__).parent.parent / "voices"
"""Voices that come with the package, by name."""
BASE = "base"
"""The one that speaks, and that a fine-tuning starts from, where none is named."""
_USUAL_PLACES = ("", "runs", "voices")
_MOST_LISTED = 8
_FULL_PRECISION = ("dvae/encoder/", "dvae/codebook/", "dvae/mel_")
"""A code is the nearest of the DVAE's vectors, so rounding could change codes: these weights keep 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Voice:
    """A voice but for its weights, which a runtime loads."""

    manifest: VoiceManifest
    config: XTTSConfig
    tokenizer: Tokenizer
    sha256: str
    """Of the weights; saved latents carry it."""
    speakers: Mapping[str, Speaker]
    aligner: NumpyAligner | None = None
    """Tells how well a wave fits its text; None where the voice was trained without."""

    @property
    def longest_text_tokens(self) -> int:
        """Longer texts are split."""
        return max(1, min(self.manifest.longest_text_tokens, self.config.model.max_text_tokens))

    @property
    def sampling(self) -> Sampling:
        """How its codes are sampled unless the caller says otherwise."""
        without_guidance = Sampling() if self.manifest.alignment_heads else WITHOUT_ALIGNMENT
        usual = self.manifest.sampling or without_guidance
        return replace(usual, guidance=GUIDANCE) if self.manifest.classifier_free_guidance else usual


def find_voice(name: str | Path) -> Path:
    """The voice folder that a name means: the one place where names are resolved.

    A name is a path, of a voice folder or of a run with one inside, or that of a built-in voice. Raises
    `CheckpointError`, and lists the voices that are near where nothing has that name.
    """
    given = Path(name)
    if is_built_in(name):
        return BUILT_IN / given
    for folder in (given, given / VOICE_FOLDER):
        if (folder / MANIFEST_FILE).is_file() or is_exported(folder):
            return folder
    if given.exists():
        raise CheckpointError(
            f"{given} holds no voice: no {MANIFEST_FILE} in it or in {VOICE_FOLDER}/",
            hint="a run has one as soon as its codec stage is done; myxtts import-xtts makes one of published weights",
        )
    places = [*(given.parent / place for place in _USUAL_PLACES), BUILT_IN]
    near = list(dict.fromkeys(voice for place in places for voice in voices_in(place)))
    near = [Path(voice.name) if voice.parent == BUILT_IN else voice for voice in near]
    more = f" and {len(near) - _MOST_LISTED} more" if len(near) > _MOST_LISTED else ""
    there = f"; there are: {', '.join(map(str, near[:_MOST_LISTED]))}{more}" if near else ""
    raise CheckpointError(
        f"there is no voice {str(name)!r}: {given} does not exist", hint=f"name a run folder or a voice folder{there}"
    )


def is_built_in(name: str | Path) -> bool:
    """Whether a name is that of a built-in voice; a folder of the same name in the working directory goes first."""
    given = Path(name)
    return len(given.parts) == 1 and not given.exists() and (BUILT_IN / given / CONFIG_FILE).is_file()


def voices_in(folder: Path) -> list[Path]:
    """Runs and voice folders directly inside of a folder, by name."""
    manifests = {
        path
        for name in (MANIFEST_FILE, litert.MANIFEST_FILE)
        for path in (*folder.glob(f"*/{name}"), *folder.glob(f"*/{VOICE_FOLDER}/{name}"))
    }
    return sorted(folder / path.relative_to(folder).parts[0] for path in manifests)


def is_exported(folder: Path) -> bool:
    """Whether a voice folder has LiteRT files instead of weights: it speaks, and cannot be trained on."""
    return (folder / litert.MANIFEST_FILE).is_file() and not (folder / MANIFEST_FILE).is_file()


def refuse_exported(folder: Path) -> None:
    """Raise `CheckpointError` where weights are needed and the folder has none."""
    if is_exported(folder):
        raise CheckpointError(
            f"{folder} was exported for speaking with LiteRT and has no weights",
            hint="name the run or the voice folder that it was exported from",
        )


def voice_manifest(folder: Path) -> VoiceManifest:
    """What the folder's manifest says; the defaults, with no parts, where there is no voice yet."""
    if is_exported(folder):
        return litert.read_manifest(folder).voice
    if not (folder / MANIFEST_FILE).is_file():
        return VoiceManifest()
    stored = read_manifest(folder)
    return VoiceManifest.from_metadata(stored.metadata, folder / MANIFEST_FILE, stored.shapes)


def read_voice_config(folder: Path) -> XTTSConfig:
    config = XTTSConfig.from_yaml(folder / CONFIG_FILE)
    if voice_manifest(folder).normed_conditioning:
        return replace(config, model=replace(config.model, normed_conditioning=True))
    return config


def read_voice_tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder / TOKENIZER_FILE)


def read_voice(folder: Path) -> Voice:
    """All of a voice folder but its weights."""
    return Voice(
        manifest=voice_manifest(folder),
        config=read_voice_config(folder),
        tokenizer=read_voice_tokenizer(folder),
        sha256=litert.read_manifest(folder).voice_sha256 if is_exported(folder) else read_manifest(folder).sha256,
        speakers=load_speakers(folder),
        aligner=NumpyAligner.load(folder / ALIGNER_FILE) if (folder / ALIGNER_FILE).is_file() else None,
    )


def trained_on_all_clips(folder: Path) -> bool:
    """Whether training held out no clip of its folder, as with --val-data; an exported voice's manifest says so."""
    known = voice_manifest(folder).trained_on_all_clips
    return known if known is not None else read_voice_config(folder).data.val_data is not None


def save_voice(folder: Path, model: Any, manifest: VoiceManifest, config: XTTSConfig, tokenizer: Tokenizer) -> None:
    """Write the parts of the model that the manifest names.

    The weights come last: whenever this is killed, the folder has the old ones or the new.
    """
    make_folder(folder)
    config.to_yaml(folder / CONFIG_FILE)
    tokenizer.save(folder / TOKENIZER_FILE)
    variables = [variable for part in manifest.parts for variable in getattr(model, part).weights]
    save_weights(folder, variables, manifest.to_metadata())


def missing_to_speak(parts: Collection[str]) -> list[str]:
    """What a voice with these parts still lacks of what every voice speaks with."""
    return [part for part in ("conditioning", "gpt") if part not in parts]


def build_parts(config: ModelConfig, parts: Iterable[str]) -> SimpleNamespace:
    """The named parts of the model and no others, on the device under whose scope this is called."""
    from myxtts.models.parts import new_part

    built = SimpleNamespace(**{part: new_part(part, config) for part in parts})
    for part in vars(built).values():
        part.build()
    return built


def build_voice(folder: Path, config: ModelConfig) -> SimpleNamespace:
    """The parts that a folder has, built and filled; sizes other than those of its weights are a `CheckpointError`."""
    check_sizes(folder, config)
    built = build_parts(config, voice_manifest(folder).parts)
    load_parts(folder, built)
    return built


def check_sizes(folder: Path, config: ModelConfig) -> None:
    """Refuse to build what the folder's weights do not fit, before it takes memory."""
    refuse_other_sizes(config, voice_manifest(folder).parts, read_manifest(folder), folder)


def load_parts(folder: Path, model: Any) -> tuple[str, ...]:
    """Fill the parts that the folder has, strictly, and return their names."""
    refuse_exported(folder)
    parts = voice_manifest(folder).parts
    assign(read_arrays(folder), [variable for part in parts for variable in getattr(model, part).weights])
    return parts


def export_voice(source: str | Path, out: Path, *, half: bool = False) -> Path:
    """Write the voice of a run (or of a voice folder) to `out`, load it from there, and return its weights' path.

    The folder holds nothing of where the voice was trained. `half` stores weights in 16 bits; they are computed with in
    32 as before. Raises `CheckpointError` where what was written is not what is read back.
    """
    folder = find_voice(source)
    refuse_exported(folder)
    manifest, config, tokenizer = voice_manifest(folder), read_voice_config(folder), read_voice_tokenizer(folder)
    # Settings of the training would tell of folders on the machine that trained it.
    kept = XTTSConfig(
        model=config.model,
        data=DataConfig(
            language=config.data.language,
            text_frontend=tokenizer.frontend,
            normalise_loudness=config.data.normalise_loudness,
        ),
    )
    stored = {name: half_precision(name, value) if half else value for name, value in read_arrays(folder).items()}
    with writing(out):
        make_folder(out)
        kept.to_yaml(out / CONFIG_FILE)
        tokenizer.save(out / TOKENIZER_FILE)
        for name in (SPEAKERS_FILE, ALIGNER_FILE):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, out / name)
        manifest = replace(manifest, trained_on_all_clips=trained_on_all_clips(folder))
        path = save_arrays(out, stored, manifest.to_metadata())
        # The library writes for the owner alone; a voice to hand on is as readable as any other file here.
        path.chmod((out / CONFIG_FILE).stat().st_mode)
    built = build_voice(out, read_voice_config(out).model)
    loaded = [variable for part in vars(built).values() for variable in part.weights]
    differing = [v.path for v in loaded if not np.array_equal(v.numpy(), stored[v.path], equal_nan=True)]
    if differing:
        raise CheckpointError(
            f"{out} does not read back as it was written: {len(differing)} weights differ, first {differing[0]}",
            hint="the disk may be failing: export to another one",
        )
    return path


def half_precision(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """The weight as a half export stores it: in 16 bits, unless it decides codes. Raises where 16 bits are too few."""
    if value.dtype != np.float32 or name.startswith(_FULL_PRECISION):
        return value
    if np.abs(value).max(initial=0.0) > np.finfo(np.float16).max:
        raise CheckpointError(f"{name} has values beyond the range of 16 bits", hint="export the voice without --half")
    return value.astype(np.float16)
