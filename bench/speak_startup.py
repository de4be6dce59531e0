"""The budget of one start for `bench.speak`: prints each part of saying a sentence with its CPU-seconds."""

from __future__ import annotations

import sys
import time


def main(folder: str) -> None:
    last = 0.0

    def passed(part: str) -> None:
        nonlocal last
        now = time.process_time()
        print(part, round(now - last, 4))
        last = now

    passed("python")
    import numpy as np

    passed("numpy")
    import myxtts.cli.synth
    import myxtts.synthesis.hallucinations
    import myxtts.synthesis.opening
    import myxtts.synthesis.synthesizer  # noqa: F401

    passed("command line and front end, imported")
    from myxtts.synthesis.opening import open_voice
    from myxtts.synthesis.speech_model import TextBatch

    synthesizer = open_voice(folder)
    passed("voice opened: tokenizer, checksums, runtime")
    ids = synthesizer.voice.tokenizer.encode("Hello there, my friend.", "en")
    passed("espeak, first text")
    known = synthesizer.latents()
    passed("reference")
    codes = synthesizer.model.stream(TextBatch(known.latents_LD[None], np.array([ids], np.int32), [len(ids)]), chunk=1)
    next(codes)
    passed("first code")
    next(synthesizer.stream("Hello there, my friend.", reference=known, checks=None))
    passed("first sound: all codes of a sentence, mel decoder, Griffin-Lim")


if __name__ == "__main__":
    main(sys.argv[1])
