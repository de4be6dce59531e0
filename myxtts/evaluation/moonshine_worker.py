"""One utterance transcribed by moonshine-voice's tiny English model, in a process of its own.

The library keeps state from one utterance to the next, even across transcribers: in one process a word error would
depend on what was evaluated before. Reads 32-bit floats, 16,000 a second, from standard input until its end; the last
line of standard output is the transcript, as a JSON string.
"""

from __future__ import annotations

import json
import sys

import moonshine_voice
import numpy as np
from moonshine_voice.transcriber import Transcriber
from moonshine_voice.utils import get_model_path

SAMPLE_RATE = 16000


def main() -> None:
    samples = np.frombuffer(sys.stdin.buffer.read(), "<f4").tolist()
    transcriber = Transcriber(str(get_model_path("tiny-en")), moonshine_voice.ModelArch.TINY)
    lines = transcriber.transcribe_without_streaming(samples, SAMPLE_RATE).lines if samples else []
    sys.stdout.write(json.dumps(" ".join(line.text for line in lines)) + "\n")


if __name__ == "__main__":
    main()
