"""The README's Python, as it stands there, in a folder that has a voice of random weights and a clip."""

from __future__ import annotations

import os
from pathlib import Path


def main(folder: str) -> None:
    import soundfile

    from tests.guides import blocks
    from tests.processes import ROOT
    from tests.voice_maker import make_voice, noise

    code = "\n".join(block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    os.chdir(folder)
    make_voice(Path("runs/mine"), ["dvae", "conditioning", "gpt"])
    soundfile.write("CLIP.wav", noise(3.0, 5), 22050)
    exec(compile(code, "README.md", "exec"), {})  # the block is our own, and what is tested
