"""A model of every part that is as small as it can be: for tests of what runs around it."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "gpt_layers": 1,
    "gpt_width": 32,
    "gpt_heads": 2,
    "conditioning_layers": 1,
    "perceiver_layers": 1,
    "dvae_width": 32,
    "dvae_code_width": 8,
    "decoder_width": 32,
    "speaker_width": 16,
}


def size_flags() -> list[str]:
    """The sizes as flags of the command line."""
    return [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]
