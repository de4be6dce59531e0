"""How a text is spoken: seed, speed and how codes are drawn, checked before anything that takes time is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.config.checks import at_least, in_range


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How codes are drawn. The defaults are the ones that worked best for voices trained from scratch."""

    temperature: float = 0.5
    """Below 1 prefers likely codes; 0 always takes the likeliest one."""

    top_k: int = 50
    """Only the k likeliest codes can be drawn; 0 for all."""

    top_p: float = 0.85
    """Only the likeliest codes that together have this probability can be drawn."""

    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of codes that were spoken already; 1 is off."""

    guidance: float = 1.0
    """Above 1, codes that the words make likelier are preferred, at twice the time: it needs a voice that was trained
    with --text-dropout. 1 is off."""

    def __post_init__(self) -> None:
        in_range("--guidance", self.guidance, 1.0, 10.0, hint="1 is off, 2 is much")
        in_range("--temperature", self.temperature, 0.0, 10.0, hint="0 is greedy, 0.5 the default")
        at_least("--top-k", self.top_k, 0, hint="0 turns it off, 50 is the default")
        in_range("--top-p", self.top_p, 1e-6, 1.0, hint="1 turns it off, 0.85 is the default")
        in_range("--repetition-penalty", self.repetition_penalty, 1.0, 100.0, hint="1, the default, is off")


GUIDANCE = 2.0
"""For voices that were trained with --text-dropout. Of 1 to 4 it was the best for a voice of half an hour of speech."""
WITHOUT_ALIGNMENT = Sampling(repetition_penalty=2.0)
"""A voice that was trained without alignments loops without a penalty; one with them speaks worse for it, since sounds
do come back in a sentence."""


def check_speed(speed: float) -> None:
    in_range("--speed", speed, 0.25, 4.0, hint="1 is the voice's own speed, 1.2 is a fifth faster")
