"""Loss scaling for 16-bit floats: gradients are taken of a larger loss, or the smallest of them would become 0.

A scale that is too large makes the gradient infinite, which skips the step: the scale is halved then, and doubled
again after many good steps. Other precisions have float32's range and keep a scale of 1.
"""

from __future__ import annotations

from typing import Any

FIRST_SCALE = 2.0**15
LARGEST_SCALE = 2.0**24
GROW_AFTER_STEPS = 2000


class LossScale:
    """The factor for the next step. Powers of two: they change no digit of a number that they do not overflow."""

    def __init__(self, compute_dtype: str) -> None:
        self.moves = compute_dtype == "float16"
        self.factor = FIRST_SCALE if self.moves else 1.0
        self._good_steps = 0

    def learnt(self, finite: bool) -> bool:
        """Take note of a step; whether an infinite gradient may be the scale's doing rather than the data's."""
        if not self.moves:
            return False
        if finite:
            self._good_steps += 1
            if self._good_steps == GROW_AFTER_STEPS:
                self.factor, self._good_steps = min(2.0 * self.factor, LARGEST_SCALE), 0
            return False
        blamed = self.factor > 1.0
        self.factor, self._good_steps = max(0.5 * self.factor, 1.0), 0
        return blamed

    def get_state(self) -> dict[str, Any]:
        return {"factor": self.factor, "good_steps": self._good_steps}

    def set_state(self, state: dict[str, Any] | None) -> None:
        """What a checkpoint kept; nothing where it was written with another precision."""
        if state is not None and self.moves and state["factor"] > 1.0:
            self.factor, self._good_steps = float(state["factor"]), int(state["good_steps"])
