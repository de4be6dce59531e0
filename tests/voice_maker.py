"""Voices of random weights for tests: they speak noise, and everything around the noise is real."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.config.model import ModelConfig
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.opening import open_voice
from myxtts.synthesis.references import Speaker, save_speakers
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voice import build_parts, save_voice
from myxtts.text.tokenizer import train_tokenizer


def small_config(**changes: int) -> ModelConfig:
    return ModelConfig(
        model_size="tiny",
        **{
            "gpt_layers": 2,
            "gpt_width": 64,
            "gpt_heads": 2,
            "max_audio_tokens": 50,
            "max_text_tokens": 120,
            "dvae_width": 32,
            "dvae_code_width": 16,
            "audio_codes": 64,
            "decoder_width": 32,
            **changes,
        },
    )


def noise(seconds: float, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(int(seconds * 22050)) * 4000).astype(np.int16)


def make_voice(folder: Path, parts: list[str], sizes: Mapping[str, int] | None = None, **manifest: Any) -> Path:
    """Random weights that never stop by themselves: what ends a text is us."""
    keras.utils.set_random_seed(0)
    tokenizer = train_tokenizer("phonemes", [("hello there", "en"), ("سلام", "fa")])
    model = small_config(text_vocab=tokenizer.size, **(sizes or {}))
    save_speakers(folder, [Speaker("anna", "en", noise(2.0, 1)), Speaker("omid", "fa", noise(2.0, 2))])
    built = build_parts(model, parts)
    if "gpt" in parts:
        bias = built.gpt.audio_head.bias.numpy()
        bias[built.gpt.audio_stop] = -100.0
        built.gpt.audio_head.bias.assign(bias)
    about = VoiceManifest(parts=tuple(parts), **{"longest_text_tokens": 60, **manifest})
    save_voice(folder, built, about, XTTSConfig(model=model), tokenizer)
    return folder


def open_on_cpu(folder: Path) -> Synthesizer:
    """The voice as the test's own process can open it, whose devices other tests may have configured already."""
    return open_voice(folder, device="/CPU:0")
