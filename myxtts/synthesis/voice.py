"""A voice on disk: weights of the parts that were trained, their configuration and the tokenizer, in one folder.

Training writes one into its run (`RUN/voice`), `import-xtts` makes one of published weights, and speaking reads either.
Only trained parts are stored, so that an untrained decoder can never be mistaken for one that speaks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.errors import CheckpointError
from myxtts.models.weights import MANIFEST_FILE, assign, read_arrays, read_manifest, save_weights
from myxtts.text.tokenizer import Tokenizer, load_tokenizer

CONFIG_FILE = "config.yaml"
TOKENIZER_FILE = "tokenizer.json"
VOICE_FOLDER = "voice"


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


def save_voice(folder: Path, model: Any, parts: list[str], config: XTTSConfig, tokenizer: Tokenizer) -> None:
    """Write the named parts of the model; the manifest is written last, so a folder that has one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    config.to_yaml(folder / CONFIG_FILE)
    tokenizer.save(folder / TOKENIZER_FILE)
    variables = [variable for part in parts for variable in getattr(model, part).weights]
    save_weights(folder, variables, {"parts": parts})


def read_voice_config(folder: Path) -> XTTSConfig:
    return XTTSConfig.from_yaml(folder / CONFIG_FILE)


def read_voice_tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder / TOKENIZER_FILE)


def load_parts(folder: Path, model: Any) -> list[str]:
    """Fill the parts that the folder has, strictly, and say which they are."""
    parts: list[str] = read_manifest(folder)["metadata"]["parts"]
    assign(read_arrays(folder), [variable for part in parts for variable in getattr(model, part).weights])
    return parts
