"""`myxtts import-xtts DIR OUT`: a published XTTS v2 folder into ours, without PyTorch and running no code of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.errors import CheckpointError, ConfigError, UsageError
from myxtts.files import writing


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Turn a published XTTS v2 folder into one that myxtts can speak with and train on.

    Example:
      myxtts import-xtts XTTS-v2 voices/xtts
    """

    source: Annotated[Path, tyro.conf.Positional]
    """Folder with model.pth, dvae.pth, mel_stats.pth, vocab.json and config.json."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write: model.safetensors, manifest.json, config.yaml and tokenizer.json; must be empty or new."""


OPTIONS = ImportOptions


def main(argv: list[str]) -> int:
    options = parse_options(ImportOptions, argv, command="import-xtts")
    if not options.source.is_dir():
        raise CheckpointError(f"{options.source} is not there", hint="name the folder that model.pth is in")
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise UsageError(f"{options.out} exists and is not an empty folder", hint="name a new folder")
    import_folder(options.source, options.out)
    return 0


def import_folder(source: Path, out: Path) -> None:
    """Read a published XTTS v2 folder and write it as a voice folder."""
    from myxtts.runtime.backend import import_tensorflow

    import_tensorflow()
    from myxtts.config.config import XTTSConfig
    from myxtts.models.coqui.folder import read_folder, sampling_of
    from myxtts.models.weights import save_arrays
    from myxtts.synthesis.manifest import VoiceManifest
    from myxtts.synthesis.voice import CONFIG_FILE, TOKENIZER_FILE
    from myxtts.text.tokenizer import XttsTokenizer, load_tokenizer

    print(f"Reading {source}")
    tokenizer = load_tokenizer(source / "vocab.json")
    if not isinstance(tokenizer, XttsTokenizer):
        raise ConfigError(
            f"{source / 'vocab.json'} is not a vocabulary of XTTS v2", hint="use the vocab.json beside model.pth"
        )
    config, weights = read_folder(source, text_start_token=tokenizer.start_id, text_stop_token=tokenizer.stop_id)
    count = sum(value.size for value in weights.values())
    print(f"{len(weights)} weights, {count / 1e6:.1f} M numbers, {tokenizer.size} text tokens")
    manifest = VoiceManifest(
        parts=tuple(dict.fromkeys(name.split("/")[0] for name in weights)),
        languages=tuple(tokenizer.languages),
        sampling=sampling_of(source),
        source=source.name,
    )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        XTTSConfig(model=config).to_yaml(out / CONFIG_FILE)
        tokenizer.save(out / TOKENIZER_FILE)
        # Last, because its manifest marks the folder as whole.
        path = save_arrays(out, weights, manifest.to_metadata())
    print(f"Wrote {path} ({path.stat().st_size / 1e9:.2f} GB)")
