"""A program of a user that opens a voice twice, for `tests/integration/test_synthesis.py`."""

from __future__ import annotations

from pathlib import Path

from myxtts import open_voice


def main(folder: str) -> None:
    open_voice(folder, runtime="tensorflow").speak("Hello there.", seed=3).save(folder + "/first.wav")
    # The devices of a process are configured once; every further voice shares them.
    speech = open_voice(Path(folder), runtime="tensorflow").speak("Hello there.", seed=3)
    speech.save(folder + "/again.wav")
