"""Options of synthesis, checked before anything that takes time is loaded: sampling, guidance and speed."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.config.checks import at_least, in_range


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How codes are sampled. The defaults worked best for voices trained from scratch."""

    temperature: float = 0.5
    """Below 1 prefers likely codes; 0 is greedy decoding."""

    top_k: int = 50
    """Sample from the k likeliest codes only; 0 for all."""

    top_p: float = 0.85
    """Sample from the likeliest codes that together have this probability (nucleus sampling)."""

    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of codes that were generated already; 1 is off."""

    guidance: float = 1.0
    """Scale of classifier-free guidance: above 1 the logits move away from those without text, at twice the time. It
    needs a voice that was trained with text dropout. 1 is off."""

    def __post_init__(self) -> None:
        in_range("--guidance", self.guidance, 1.0, 10.0, hint="1 is off, 2 is much")
        in_range("--temperature", self.temperature, 0.0, 10.0, hint="0 is greedy, 0.5 the default")
        at_least("--top-k", self.top_k, 0, hint="0 turns it off, 50 is the default")
        in_range("--top-p", self.top_p, 1e-6, 1.0, hint="1 turns it off, 0.85 is the default")
        in_range("--repetition-penalty", self.repetition_penalty, 1.0, 100.0, hint="1, the default, is off")


GUIDANCE = 2.0
"""For voices that were trained with text dropout. Of 1 to 4 it was the best for a voice of half an hour of speech."""
CANDIDATES = 8
"""For voices with an aligner and a decoder of mels: it mends two of five wrong words (recipes/base)."""
MOST_CANDIDATES = 64
WITHOUT_ALIGNMENT = Sampling(repetition_penalty=2.0)
"""A voice that was trained without the alignment loss loops without a penalty; one with it speaks worse with a penalty,
since sounds recur in a sentence."""


def check_speed(speed: float) -> None:
    in_range("--speed", speed, 0.25, 4.0, hint="1 is the voice's own speed, 1.2 is a fifth faster")
