"""Defaults that depend on something else, and the named sets of settings: model sizes and optimisation levels.

One rule for all of them: a setting whose default is `NOT_GIVEN` takes its value from what it depends on, unless it was
given. Sizes and optimisation levels are filled in when a section is built, how a GPT learns once it is known what the
voice of `--init-from` brings, and the optimiser's settings when a stage's recipe is chosen. Flags over YAML is
`myxtts.cli.flags`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from myxtts.config.suggest import unknown_name

NOT_GIVEN: Any = None
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


def preset(presets: Mapping[str, Mapping[str, Any]], flag: str, name: str) -> Mapping[str, Any]:
    """The settings of a named preset; a name that is not known is an error with the flag and the closest names."""
    if name not in presets:
        raise unknown_name(flag, name, presets)
    return presets[name]


def given(section: Any, names: Iterable[str]) -> dict[str, Any]:
    """Those of the named settings that were given."""
    return {name: value for name in names if (value := getattr(section, name)) is not NOT_GIVEN}


def not_given(section: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the defaults whose setting was not given."""
    return {name: value for name, value in defaults.items() if getattr(section, name) is NOT_GIVEN}


def fill(section: Any, defaults: Mapping[str, Any]) -> None:
    """Give the settings that were not given their defaults, while a frozen section is being built."""
    for name, value in not_given(section, defaults).items():
        object.__setattr__(section, name, value)
