"""A voice on disk: weights of the parts that were trained, their configuration and the tokenizer, in one folder.

Training writes one into its run (`RUN/voice`), `import-xtts` makes one of published weights, and speaking reads either.
Only trained parts are stored, so that an untrained decoder can never be mistaken for one that speaks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.config.model import ModelConfig
from myxtts.errors import CheckpointError
from myxtts.models.weights import MANIFEST_FILE, assign, read_arrays, read_manifest, save_weights
from myxtts.text.tokenizer import Tokenizer, load_tokenizer

CONFIG_FILE = "config.yaml"
TOKENIZER_FILE = "tokenizer.json"
VOICE_FOLDER = "voice"
LEARNT_ALL_CLIPS = "learnt_all_clips"
LEARNT_FROM = "learnt_from"
POSTFILTER = "detail"


def find_voice(path: str | Path) -> Path:
    """The voice folder that a path means: itself, or the one inside a run."""
    given = Path(path)
    for folder in (given, given / VOICE_FOLDER):
        if (folder / MANIFEST_FILE).is_file():
            return folder
    if not given.exists():
        raise CheckpointError(f"{given} does not exist", hint="name a run folder or a voice folder")
    raise CheckpointError(
        f"{given} holds no voice: no {MANIFEST_FILE} in it or in {VOICE_FOLDER}/",
        hint="a run has one as soon as its codec stage is done; myxtts import-xtts makes one of published weights",
    )


def save_voice(
    folder: Path,
    model: Any,
    parts: list[str],
    config: XTTSConfig,
    tokenizer: Tokenizer,
    manifest: Mapping[str, Any] | None = None,
) -> None:
    """Write the named parts of the model; the weights come last, and are the old ones or the new whenever it is killed.

    `manifest` are what speaking should know of the training: `longest_tokens`, `reference_seconds`, `alignment_heads`,
    `guided`, `languages`, `detail` (gains of `myxtts.audio.postfilter` by part), and for evaluating it `learnt_from`:
    the clip lists (`PreparedCorpus.clip_list`) of its training corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config.to_yaml(folder / CONFIG_FILE)
    tokenizer.save(folder / TOKENIZER_FILE)
    variables = [variable for part in parts for variable in getattr(model, part).weights]
    save_weights(folder, variables, {"parts": parts, **(manifest or {})})


def read_voice_config(folder: Path) -> XTTSConfig:
    config = XTTSConfig.from_yaml(folder / CONFIG_FILE)
    # Folders of an earlier import-xtts say it in their manifest.
    if voice_manifest(folder).get("normed_conditioning"):
        return replace(config, model=replace(config.model, normed_conditioning=True))
    return config


def read_voice_tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder / TOKENIZER_FILE)


def voice_manifest(folder: Path) -> dict[str, Any]:
    """What `save_voice` was told beside the weights; empty where there is no voice yet."""
    if not (folder / MANIFEST_FILE).is_file():
        return {}
    manifest: dict[str, Any] = read_manifest(folder)["metadata"]
    return manifest


def learnt_all_clips(folder: Path) -> bool:
    """Whether training held out no clip of its folder, as with --val-data; an exported voice's manifest says so."""
    return bool(voice_manifest(folder).get(LEARNT_ALL_CLIPS, read_voice_config(folder).data.val_data is not None))


def voice_parts(manifest: Mapping[str, Any]) -> list[str]:
    """The parts that a folder has; those of an import are known by their weights."""
    named: list[str] | None = manifest["metadata"].get("parts")
    return named if named is not None else list(dict.fromkeys(name.split("/")[0] for name in manifest["weights"]))


def missing_to_speak(parts: Collection[str]) -> list[str]:
    """What a voice with these parts still lacks of what every voice speaks with."""
    return [part for part in ("conditioning", "gpt") if part not in parts]


def build_parts(config: ModelConfig, parts: list[str]) -> SimpleNamespace:
    """The named parts of the model and no others, on the device under whose scope this is called."""
    from myxtts.models.conditioning import Conditioning
    from myxtts.models.dvae import DVAE
    from myxtts.models.gpt import GPT
    from myxtts.models.hifigan import HiFiGAN
    from myxtts.models.mel_decoder import MelDecoder
    from myxtts.models.speaker_encoder import SpeakerEncoder

    kinds: dict[str, Any] = {
        "dvae": DVAE,
        "conditioning": Conditioning,
        "gpt": GPT,
        "mel_decoder": MelDecoder,
        "speaker_encoder": SpeakerEncoder,
        "hifigan": HiFiGAN,
    }
    unknown = [part for part in parts if part not in kinds]
    if unknown:
        raise CheckpointError(
            f"the voice has a part {unknown[0]!r} that this version does not know", hint="update myxtts"
        )
    built = SimpleNamespace(**{part: kinds[part](config) for part in parts})
    for part in vars(built).values():
        part.build()
    return built


def load_parts(folder: Path, model: Any) -> list[str]:
    """Fill the parts that the folder has, strictly, and say which they are."""
    parts = voice_parts(read_manifest(folder))
    assign(read_arrays(folder), [variable for part in parts for variable in getattr(model, part).weights])
    return parts
