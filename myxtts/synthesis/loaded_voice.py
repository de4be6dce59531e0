"""A voice in memory: everything that speaking needs, from a folder or of a model that is still in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.config.speaking import GUIDANCE, WITHOUT_ALIGNMENT, Sampling
from myxtts.errors import SynthesisError
from myxtts.models.weights import read_manifest
from myxtts.synthesis.decoding import CodecDecoder
from myxtts.synthesis.references import XTTS_REFERENCE_SECONDS, Speaker, load_speakers
from myxtts.synthesis.voice import (
    POSTFILTER,
    build_parts,
    find_voice,
    load_parts,
    missing_to_speak,
    read_voice_config,
    read_voice_tokenizer,
    voice_manifest,
    voice_parts,
)
from myxtts.text.tokenizer import Tokenizer

PIECE_TOKENS = 200
"""Longest piece where the voice does not say what it was trained on; about 15 seconds."""


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Parts, tokenizer and what speaking should know of the training."""

    parts: Any
    """Layers by part, as attributes."""
    names: tuple[str, ...]
    """Which parts those are."""
    config: XTTSConfig
    tokenizer: Tokenizer
    digest: str
    """Of the weights; saved latents carry it."""
    speakers: dict[str, Speaker]
    languages: tuple[str, ...] = ()
    """Those that it learnt; empty where that is not known."""
    longest_tokens: int = PIECE_TOKENS
    reference_seconds: float = XTTS_REFERENCE_SECONDS
    alignment_heads: tuple[tuple[int, int], ...] = ()
    guided: bool = False
    """Whether it learnt to speak without a text too, and can be guided away from that."""
    postfilter: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """For the parts that make mels, the gains that give back what they smooth away (`myxtts.audio.postfilter`)."""
    published_sampling: Sampling | None = None
    """How an imported voice's makers let it draw codes."""

    @property
    def sampling(self) -> Sampling:
        """How it draws codes unless it is told otherwise."""
        usual = self.published_sampling or (Sampling() if self.alignment_heads else WITHOUT_ALIGNMENT)
        return replace(usual, guidance=GUIDANCE) if self.guided else usual


def load_voice(path: str | Path) -> Voice:
    """Read a run's voice or a voice folder, onto the device under whose scope this is called."""
    folder = find_voice(path)
    stored = read_manifest(folder)
    names, manifest = voice_parts(stored), stored["metadata"]
    if missing := missing_to_speak(names):
        raise SynthesisError(
            f"the voice in {folder} cannot speak yet: it has {', '.join(names)} and no {missing[0]}",
            hint="train its gpt stage too: run the same train command again, without --stage",
        )
    config = read_voice_config(folder)
    parts = build_parts(config.model, names)
    load_parts(folder, parts)
    return voice_with(
        manifest,
        parts=parts,
        names=tuple(names),
        config=config,
        tokenizer=read_voice_tokenizer(folder),
        digest=stored["sha256"],
        speakers=load_speakers(folder),
    )


def load_codec(path: str | Path) -> CodecDecoder:
    """The codec alone of a run or a voice folder, whose GPT need not have learnt yet."""
    folder = find_voice(path)
    parts = build_parts(read_voice_config(folder).model, voice_parts(read_manifest(folder)))
    load_parts(folder, parts)
    return CodecDecoder(parts.dvae, voice_manifest(folder).get(POSTFILTER, {}).get("dvae"))


def voice_with(manifest: Mapping[str, Any], *, config: XTTSConfig, **given: Any) -> Voice:
    """A voice with what its manifest says; `given` is what else `Voice` wants."""
    longest = manifest.get("longest_tokens", PIECE_TOKENS)
    return Voice(
        config=config,
        **given,
        languages=tuple(manifest.get("languages", ())),
        longest_tokens=max(1, min(longest, config.model.max_text_tokens)),
        reference_seconds=manifest.get("reference_seconds", XTTS_REFERENCE_SECONDS),
        alignment_heads=tuple((layer, head) for layer, head in manifest.get("alignment_heads", [])),
        guided=bool(manifest.get("guided")),
        postfilter=manifest.get(POSTFILTER, {}),
        published_sampling=Sampling(**manifest["sampling"]) if "sampling" in manifest else None,
    )
