"""What writes our files, three versions of each, and what reads them again: the version that a folder has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus, open_prepared
from myxtts.errors import DataError
from myxtts.models.weights import MANIFEST_FILE, read_arrays, read_manifest, save_arrays
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.report import write_report
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import Speaker, save_speakers
from myxtts.synthesis.voice import read_voice, save_voice
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training.checkpoint import Checkpoint, load_latest, mark_best, save_checkpoint
from tests.corpus_maker import make_ljspeech, settings
from tests.shim import mark

VERSIONS = (1, 2, 3)


def _values(version: int) -> dict[str, np.ndarray]:
    return {"gpt/a": np.full(300, version, np.float32), "dvae/b": np.full((4, 5), version, np.float32)}


def _check_values(arrays: dict[str, np.ndarray], version: int) -> None:
    for name, value in _values(version).items():
        assert np.array_equal(arrays[name], value), f"{name} is not of version {version}"


def write_checkpoints(folder: Path, _corpora: Path) -> None:
    checkpoints = folder / "run" / "checkpoints" / "codec"
    for version in VERSIONS:
        save_checkpoint(checkpoints, Checkpoint(step=version, arrays=_values(version)), keep=1)
        mark(str(version))
        mark_best(checkpoints, version, 1.0 / version)


def read_checkpoints(folder: Path, _corpora: Path) -> int:
    loaded = load_latest(folder / "run" / "checkpoints" / "codec")
    if loaded is None:
        return 0
    _check_values(dict(loaded.arrays), loaded.step)
    return loaded.step


def publish(folder: Path, _corpora: Path) -> None:
    voice = folder / "run" / "voice"
    tokenizer = train_tokenizer("characters", [("hello there", "en")])
    for version in VERSIONS:
        named = {name: SimpleNamespace(path=name, value=_Value(value)) for name, value in _values(version).items()}
        model: Any = SimpleNamespace(
            gpt=SimpleNamespace(weights=[named["gpt/a"]]), dvae=SimpleNamespace(weights=[named["dvae/b"]])
        )
        manifest = VoiceManifest(parts=("gpt", "dvae"), trained_to=("gpt", version))
        save_speakers(voice, [Speaker("anna", "en", np.full(50, version, np.int16))])
        save_voice(voice, model, manifest, XTTSConfig(), tokenizer)
        mark(str(version))


class _Value:
    """A variable's value, as `save_voice` asks for it."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def numpy(self) -> np.ndarray:
        return self._values


def read_published(folder: Path, _corpora: Path) -> int:
    voice = folder / "run" / "voice"
    if not (voice / MANIFEST_FILE).is_file():
        return 0
    read = read_voice(voice)
    assert read.manifest.trained_to is not None
    version = read.manifest.trained_to[1]
    _check_values(read_arrays(voice), version)
    assert list(read.speakers) == ["anna"]
    return version


def write_prepared(folder: Path, corpora: Path) -> None:
    """Each version is of another corpus, in the place of the one before."""
    for version in VERSIONS[:2]:
        _prepare(folder, corpora, version)
        mark(str(version))


def _prepare(folder: Path, corpora: Path, version: int) -> PreparedCorpus:
    corpus = corpora / str(version)
    if not corpus.exists():
        make_ljspeech(corpus, seconds=[0.06] * version)
    config = settings(folder, min_clip_seconds=0.05, trim_silence=False)
    return prepare(corpus, config, out=folder / "cache" / "out", workers=1)


def read_prepared(folder: Path, corpora: Path) -> int:
    """A folder that is no prepared corpus counts as the version that the next call makes of it."""
    target = folder / "cache" / "out"
    try:
        prepared = open_prepared(target)
    except DataError:
        prepared = _prepare(folder, corpora, 1)
        assert [len(prepared.read(clip).wave) for clip in range(len(prepared))]
        return 0
    for clip in range(len(prepared)):
        assert prepared.read(clip).text
    assert prepared.tokenizer.size
    return len(prepared)


def write_reports(folder: Path, _corpora: Path) -> None:
    with EventLog(folder / "run" / "events.jsonl") as events:
        for version in VERSIONS:
            events.write("run_end", reason="finished", message=f"version {version}.")
            write_report(folder / "run")
            mark(str(version))


def read_report(folder: Path, _corpora: Path) -> int:
    page = folder / "run" / "report.html"
    if not page.exists():
        return 0
    text = page.read_text(encoding="utf-8")
    assert text.endswith("</html>\n"), "the page is cut"
    return next(version for version in VERSIONS if f"version {version}." in text)


def write_weights(folder: Path, _corpora: Path) -> None:
    """Weights over others, and nothing else in between."""
    for version in VERSIONS:
        save_arrays(folder / "weights", _values(version), {"version": version})
        mark(str(version))


def read_weights(folder: Path, _corpora: Path) -> int:
    if not (folder / "weights" / MANIFEST_FILE).is_file():
        return 0
    version = int(read_manifest(folder / "weights").metadata["version"])
    _check_values(read_arrays(folder / "weights"), version)
    return version


WRITERS: dict[str, tuple[Callable[[Path, Path], None], Callable[[Path, Path], int]]] = {
    "checkpoint": (write_checkpoints, read_checkpoints),
    "publish": (publish, read_published),
    "weights": (write_weights, read_weights),
    "prepare": (write_prepared, read_prepared),
    "report": (write_reports, read_report),
}
