"""`python -m bench.random_voice FOLDER`: a voice folder of the size tiny with random weights that never stop, exported.

Its sentences end at their limit: every request costs the same.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

CODES = 100


def main(folder: Path) -> None:
    import keras
    import numpy as np

    from myxtts.config.config import XTTSConfig
    from myxtts.config.model import ModelConfig
    from myxtts.synthesis.manifest import VoiceManifest
    from myxtts.synthesis.opening import open_voice
    from myxtts.synthesis.references import Speaker, save_speakers
    from myxtts.synthesis.voice import build_parts, save_voice
    from myxtts.text.tokenizer import train_tokenizer

    keras.utils.set_random_seed(0)
    tokenizer = train_tokenizer("phonemes", [("hello there", "en")])
    model = dataclasses.replace(ModelConfig(model_size="tiny"), max_audio_tokens=CODES, text_vocab=tokenizer.size)
    manifest = VoiceManifest(parts=("dvae", "conditioning", "gpt"), longest_text_tokens=120)
    built = build_parts(model, manifest.parts)
    bias = built.gpt.audio_head.bias.numpy()
    bias[built.gpt.audio_stop] = -100.0
    built.gpt.audio_head.bias.assign(bias)
    noise = (np.random.default_rng(0).standard_normal(3 * 22050) * 4000).astype(np.int16)
    save_speakers(folder, [Speaker("noise", "en", noise)])
    save_voice(folder, built, manifest, XTTSConfig(model=model), tokenizer)
    open_voice(folder)  # exports it


if __name__ == "__main__":
    main(Path(sys.argv[1]))
