"""Guards against speech that does not end, repeats itself or leaves words out: pure judgements of generated codes.

XTTS users complain of nothing more than of hallucinated tails. `judge` finds them from the codes, from whether the
model stopped, and from where its alignment heads looked; `guarded.generate_guarded` acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from myxtts.config.checks import at_least

_NEIGHBOURS = 5
"""Codes over which a look of the heads is steadied: a phone takes about two."""


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
    """What counts as going wrong. There are 21.5 codes in a second."""

    codes_per_token: float = 10.0
    """Most codes that one text token takes on average; speech has about 2 for a phoneme and 5 for a byte-pair piece."""

    spare_codes: int = 40
    """Codes granted beside those, for pauses and very short texts."""

    loop_codes: int = 32
    """A pattern must fill at least so many codes at the end to count as a loop; pauses are shorter."""

    loop_period: int = 16
    """Longest pattern that is looked for."""

    least_codes_per_token: float = 0.4
    """Fewer codes for each text token are no speech of it; the fastest speakers have about 1."""

    tail_codes: int = 24
    """Codes that may follow once the alignment has reached the end of the text, or has gone as far as it ever goes."""

    skip_tokens: int = 6
    """Text tokens that the alignment may jump over at once, or leave out at the end."""

    retries: int = 2
    """New attempts, each with another seed, before the best one is cut and used."""

    def __post_init__(self) -> None:
        at_least("codes_per_token", self.codes_per_token, 0.1, hint="the default is 10")
        at_least("loop_codes", self.loop_codes, 4, hint="the default is 32 codes, 1.5 seconds")
        at_least("loop_period", self.loop_period, 1, hint="the default is 16 codes")
        at_least("retries", self.retries, 0, hint="0 cuts at once")


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one row of codes, and where to cut it if nothing better comes."""

    fault: str | None
    """None, "no stop", "loop", "tail", "skip" or "short"."""
    keep: int
    """Codes that are worth keeping."""

    @property
    def good(self) -> bool:
        return self.fault is None


def expected_limit(text_tokens: int, guards: GuardConfig) -> int:
    """Codes within which a text of so many tokens should have stopped."""
    return int(text_tokens * guards.codes_per_token) + guards.spare_codes


def loop_start(codes: np.ndarray, guards: GuardConfig) -> int | None:
    """Index where the codes begin to repeat one pattern until their end, or None."""
    count = len(codes)
    for period in range(1, min(guards.loop_period, count // 2) + 1):
        different = np.flatnonzero(codes[period:] != codes[:-period])
        start = int(different[-1]) + 1 if len(different) else 0
        if count - start >= max(guards.loop_codes, 3 * period):
            # One full turn of the pattern may be speech.
            return start + period
    return None


def judge(
    codes: np.ndarray,
    stopped: bool,
    text_tokens: int,
    guards: GuardConfig,
    spoken_token: np.ndarray | None = None,
    last_sounding: int | None = None,
) -> Verdict:
    """The first fault of a row, worst first.

    `spoken_token` is where the alignment heads looked for each code, `last_sounding` the last token that they ever have
    reason to look at: the full stop behind it takes no time.
    """
    loop = loop_start(codes, guards)
    if loop is not None:
        return Verdict("loop", loop)
    looked_at = settled(spoken_token) if spoken_token is not None and len(spoken_token) else None
    last = text_tokens - 1 if last_sounding is None else last_sounding
    end = None if looked_at is None else _text_end(looked_at, last)
    if end is not None and len(codes) - end > guards.tail_codes:
        return Verdict("tail", end + guards.tail_codes)
    if not stopped:
        got = len(codes) if looked_at is None else _last_advance(looked_at) + guards.tail_codes
        return Verdict("no stop", min(got, len(codes)))
    if len(codes) < max(1, int(text_tokens * guards.least_codes_per_token)):
        return Verdict("short", len(codes))
    if looked_at is not None and _most_left_out(looked_at, last) > guards.skip_tokens:
        return Verdict("skip", len(codes))
    return Verdict(None, len(codes))


def settled(spoken_token: np.ndarray) -> np.ndarray:
    """Where the heads looked, without glimpses of a code or two: the median of five neighbours."""
    if len(spoken_token) < _NEIGHBOURS:
        return spoken_token
    mirrored = np.pad(spoken_token, _NEIGHBOURS // 2, mode="reflect")
    medians: np.ndarray = np.median(sliding_window_view(mirrored, _NEIGHBOURS), axis=-1).astype(spoken_token.dtype)
    return medians


def _text_end(spoken_token: np.ndarray, last: int) -> int | None:
    """First code from which on the heads look at the end of the text; they are a token off at times."""
    before = np.flatnonzero(spoken_token < last - 1)
    end = int(before[-1]) + 1 if len(before) else 0
    return end if end < len(spoken_token) else None


def _last_advance(spoken_token: np.ndarray) -> int:
    """The code at which the alignment was first as far as it ever got: what follows says nothing new."""
    return int(np.argmax(spoken_token))


def _most_left_out(spoken_token: np.ndarray, last: int) -> int:
    """Tokens that the alignment left out in one place, measured from the furthest it had been; the end is one too."""
    furthest = np.maximum.accumulate(np.concatenate([[0], spoken_token]))
    return int(max(np.max(np.diff(furthest)), last - furthest[-1]))
