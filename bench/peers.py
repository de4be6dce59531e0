"""Figures of peers that were measured earlier, quoted where the peer is not installed; `peers.md` says how and when."""

from __future__ import annotations

SMALL = (6, 256, 4)
"""Layers, width and heads of the small GPT."""

STORED = {
    "gpt train step": 1.64,
    "generation": 223.0,
    "conditioning": 0.085,
    "speaker vector": 0.30,
    "hifigan": 0.71,
    "text to wave": 0.84,
    "import": 8.0,
    "memory": 745.0,
}
