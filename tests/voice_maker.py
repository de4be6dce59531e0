"""Voices of random weights for tests: they speak noise, and everything around the noise is real."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.config.model import ModelConfig
from myxtts.synthesis.references import Speaker, save_speakers
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


def make_voice(folder: Path, parts: list[str], **manifest: object) -> Path:
    """Random weights that never stop by themselves: what ends a text is us."""
    keras.utils.set_random_seed(0)
    tokenizer = train_tokenizer("phonemes", [("hello there", "en"), ("سلام", "fa")])
    model = small_config(text_vocab=tokenizer.size)
    save_speakers(folder, [Speaker("anna", "en", noise(2.0, 1)), Speaker("omid", "fa", noise(2.0, 2))])
    built = build_parts(model, parts)
    if "gpt" in parts:
        bias = built.gpt.audio_head.bias.numpy()
        bias[built.gpt.audio_stop] = -100.0
        built.gpt.audio_head.bias.assign(bias)
    save_voice(folder, built, parts, XTTSConfig(model=model), tokenizer, {"longest_tokens": 60, **manifest})
    return folder
