"""Two minutes as Ogg: what Vorbis does not bear ends the process."""

from __future__ import annotations

import numpy as np

from myxtts.audio.io import write_audio


def main(path: str) -> None:
    write_audio(path, np.random.default_rng(0).integers(-1500, 1500, 120 * 24000).astype(np.int16), 24000)
