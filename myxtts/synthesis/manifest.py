"""The manifest of a voice: what speaking and evaluating must know of its training.

It stands as `metadata` in the manifest.json beside the weights. Reading is strict: a key that this version does not
know, or a value of another type, is a `CheckpointError` that names the file and the key. Manifests of version 0.1,
which carry no format version, are migrated (`myxtts.config.earlier`). No TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myxtts.config import earlier
from myxtts.config.speaking import Sampling
from myxtts.config.suggest import did_you_mean
from myxtts.config.training import Stage
from myxtts.errors import CheckpointError, ConfigError

FORMAT_VERSION = 2
VERSION_KEY = "format_version"


@dataclass(frozen=True, kw_only=True)
class VoiceManifest:
    """Everything has a default, which is what an imported voice has where its makers published nothing."""

    parts: tuple[str, ...] = ()
    """Parts of the model whose weights are there."""

    languages: tuple[str, ...] = ()
    """Languages of its training clips; empty where they are not known."""

    longest_text_tokens: int = 200
    """Longer texts are split: almost all that it was trained on are shorter. 200 tokens are about 15 seconds."""

    reference_seconds: float = 6.0
    """Length of a window of the reference, as in training; 6 s is XTTS v2's."""

    alignment_heads: tuple[tuple[int, int], ...] = ()
    """(layer, head) of the GPT's heads that were trained to attend to the text token that is spoken."""

    classifier_free_guidance: bool = False
    """Whether it was trained with text dropout too, so that its unconditional logits mean something."""

    postfilter: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Gains of the global-variance postfilter (`myxtts.audio.postfilter`) by the part that makes the mels."""

    sampling: Sampling | None = None
    """How an imported voice's makers sample its codes; None for our own voices."""

    trained_to: tuple[Stage, int] | None = None
    """Stage and step of the run that the weights are of; None for a voice that no run of ours has trained."""

    trained_on: tuple[str, ...] = ()
    """Clip lists (`PreparedCorpus.clip_list`) of its training corpora."""

    trained_on_all_clips: bool | None = None
    """Whether no clip of its training folder was held out; None where its config.yaml tells that."""

    source: str | None = None
    """Name of the folder that it was imported from."""

    normed_conditioning: bool = False
    """Set in folders that an early import-xtts wrote; later ones have it in config.yaml."""

    def to_metadata(self) -> dict[str, Any]:
        """As `from_metadata` reads it, in types that JSON has."""
        return {VERSION_KEY: FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_metadata(cls, metadata: Any, path: Path, weights: Iterable[str] = ()) -> VoiceManifest:
        """Read what `to_metadata` wrote, or version 0.1.

        `path` is the file, for errors; `weights` are the names of the weights beside it, by which the parts of a
        manifest without `parts` are known. Raises `CheckpointError`.
        """
        if not isinstance(metadata, dict):
            raise CheckpointError(f"{path}: metadata is no mapping", hint="export the voice again")
        given = dict(metadata)
        version = given.pop(VERSION_KEY, None)
        if version is None:
            given = earlier.manifest_of(given)
        elif version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path}: {VERSION_KEY} is {version!r}, this version reads up to {FORMAT_VERSION}", hint="update myxtts"
            )
        given.setdefault("parts", list(dict.fromkeys(name.split("/")[0] for name in weights)))
        return cls(**{name: _read(name, value, path) for name, value in given.items()})


def _read(name: str, value: Any, path: Path) -> Any:
    """One value in its field's own type."""
    if name not in _READERS:
        raise CheckpointError(
            f"{path} has a key {name!r} that this version does not know",
            hint=f"update myxtts, or correct the key: {did_you_mean(name, _READERS)}",
        )
    read, expected, optional = _READERS[name]
    if value is None and optional:
        return None
    try:
        return read(value)
    except (TypeError, ValueError, ConfigError) as error:
        reason = f": {error.problem}" if isinstance(error, ConfigError) else ""
        raise CheckpointError(
            f"{path}: {name} is {_shown(value)}, must be {expected}{reason}",
            hint="export or publish the voice again, or restore the file from a copy",
        ) from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:  # a bool is an int, and no number of anything
            raise TypeError
        return value

    return read


_text, _whole, _flag = _exactly(str), _exactly(int), _exactly(bool)


def _number(value: Any) -> float:
    return float(value if type(value) is float else _whole(value))


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read_list(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(read(item) for item in value)

    return read_list


def _pair(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
    def read(value: Any) -> tuple[Any, Any]:
        left, right = value
        return first(left), second(right)

    return read


def _gains(value: Any) -> dict[str, tuple[float, ...]]:
    return {_text(part): _list_of(_number)(gains) for part, gains in _exactly(dict)(value).items()}


def _sampling(value: Any) -> Sampling:
    settings: dict[str, Any] = {
        name: _whole(item) if name == "top_k" else _number(item) for name, item in _exactly(dict)(value).items()
    }
    return Sampling(**settings)


_READERS: dict[str, tuple[Callable[[Any], Any], str, bool]] = {
    "parts": (_list_of(_text), "a list of names", False),
    "languages": (_list_of(_text), "a list of language codes", False),
    "longest_text_tokens": (_whole, "a whole number", False),
    "reference_seconds": (_number, "a number", False),
    "alignment_heads": (_list_of(_pair(_whole, _whole)), "a list of [layer, head]", False),
    "classifier_free_guidance": (_flag, "true or false", False),
    "postfilter": (_gains, "lists of numbers by part", False),
    "sampling": (_sampling, "settings of the sampling", True),
    "trained_to": (_pair(_text, _whole), "[stage, step]", True),
    "trained_on": (_list_of(_text), "a list of texts", False),
    "trained_on_all_clips": (_flag, "true or false", True),
    "source": (_text, "a text", True),
    "normed_conditioning": (_flag, "true or false", False),
}
"""For each field: how a JSON value is read, what it must be in words, and whether it may be null."""
