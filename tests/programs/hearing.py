"""A recogniser for tests, as a user's plug-in: `--recogniser tests.programs.hearing:slow_recogniser`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from myxtts.evaluation.metrics import Wave

WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima".split()


class SlowRecogniser:
    """Two words a second, from a list; notes each call in the file that the environment names."""

    name = "slow"
    languages = frozenset({"en"})

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        time.sleep(0.05)
        with Path(os.environ["MYXTTS_TEST_CALLS"]).open("a") as file:
            file.write("call\n")
        return " ".join(WORDS[number % len(WORDS)] for number in range(max(1, round(2 * len(wave) / sample_rate))))


def slow_recogniser() -> SlowRecogniser:
    return SlowRecogniser()
