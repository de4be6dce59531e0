"""Speaks with an exported voice where TensorFlow, Keras and all that only training needs cannot be imported."""

from __future__ import annotations

import sys

FORBIDDEN = ("tensorflow", "keras", "tensorboard", "grain", "array_record", "pynvml", "torch", "wordfreq")


def main(voice: str, reference: str) -> None:
    for name in FORBIDDEN:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it is an error
    from myxtts import open_voice
    from myxtts.synthesis.hallucinations import HallucinationChecks

    checks = HallucinationChecks(retries=0)
    synthesizer = open_voice(voice)
    spoken = synthesizer.speak("Hello there, in 1999.", checks=checks)
    cloned = synthesizer.speak("Hello.", reference=reference, checks=checks, speed=1.1)
    streamed = sum(len(piece.wave) for piece in synthesizer.stream("Hello there.", checks=checks))
    print(len(spoken.wave) > 0, len(spoken.words), len(cloned.wave) > 0, streamed > 0)
