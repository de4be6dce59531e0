"""Forced alignments of a corpus: for each code of a clip the token that is spoken then, as the CTC aligner found it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import frame_count
from myxtts.config.model import FRAMES_PER_CODE


@dataclass(frozen=True)
class Alignments:
    """Token indices of all clips of one corpus, one after another."""

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]

    def rows(self, clips: NDArray[np.integer], codes: int) -> NDArray[np.int32]:
        """[B, codes] for a batch, padded with zeros."""
        aligned = np.zeros((len(clips), codes), np.int32)
        for row, clip in enumerate(clips):
            own = self.of(clip)
            aligned[row, : len(own)] = own
        return aligned

    def of(self, clip: int) -> NDArray[np.int64]:
        """The index of the token of each code of a clip, never falling."""
        return self.tokens[self.starts[clip] : self.starts[clip + 1]].astype(np.int64)


def codes_of(wave_samples: Any) -> Any:
    """Number of codes of a wave with so many samples, padding included."""
    return (frame_count(wave_samples) + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE
