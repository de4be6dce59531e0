"""Named sets of settings: the four model sizes and the three optimisation levels.

A field whose default is `FROM_PRESET` takes its value from the preset unless it was given. That is the whole
of the precedence between presets and explicit settings; flags over YAML is `myxtts.config.loading`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from myxtts.config.suggest import unknown_name

FROM_PRESET: Any = None
"""Typed `Any` so that a field can be declared with the type that it has once it is resolved."""

_XTTS_V2: dict[str, Any] = {
    "text_vocab": 6681,
    "audio_codes": 1024,
    "gpt_layers": 30,
    "gpt_width": 1024,
    "gpt_heads": 16,
    "max_text_tokens": 402,
    "max_audio_tokens": 605,
    "conditioning_latents": 32,
    "conditioning_layers": 6,
    "perceiver_layers": 2,
    "perceiver_heads": 8,
    "dvae_width": 1024,
    "dvae_code_width": 512,
    "decoder": "hifigan",
    "decoder_width": 512,
    "speaker_width": 512,
}

MODEL_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_XTTS_V2,
        "text_vocab": 256,
        "gpt_layers": 4,
        "gpt_width": 192,
        "gpt_heads": 4,
        "conditioning_latents": 8,
        "conditioning_layers": 2,
        "perceiver_layers": 2,
        "perceiver_heads": 4,
        "dvae_width": 192,
        "dvae_code_width": 64,
        "decoder": "mel",
        "decoder_width": 128,
    },
    "small": {**_XTTS_V2, "gpt_layers": 6, "gpt_width": 256, "gpt_heads": 4},
    "normal": {**_XTTS_V2, "gpt_layers": 12, "gpt_width": 512, "gpt_heads": 8},
    "big": _XTTS_V2,
}

OPTIMIZATION_LEVELS: dict[str, dict[str, Any]] = {
    "basic": {"jit_compile": False, "mixed_precision": False},
    "enhanced": {"jit_compile": True, "mixed_precision": False},
    "experimental": {"jit_compile": True, "mixed_precision": True},
}


def fill_from(config: Any, presets: Mapping[str, Mapping[str, Any]], flag: str, name: str) -> None:
    """Give every unset `FROM_PRESET` field of a frozen dataclass the value of the named preset."""
    if name not in presets:
        raise unknown_name(flag, name, presets)
    preset = presets[name]
    for item in fields(config):
        if item.name in preset and getattr(config, item.name) is FROM_PRESET:
            object.__setattr__(config, item.name, preset[item.name])
