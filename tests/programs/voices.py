"""A voice of random weights in a folder, with its export, for servers to speak with."""

from __future__ import annotations

from pathlib import Path


def main(folder: str) -> None:
    from myxtts.synthesis.opening import open_voice
    from tests.voice_maker import make_voice

    make_voice(Path(folder), ["dvae", "conditioning", "gpt"])
    open_voice(folder)  # exports it
