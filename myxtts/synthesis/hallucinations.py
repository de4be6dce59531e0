"""Hallucination checks: speech that does not end, repeats itself or leaves words out is noticed, tried again with
another seed, and what was done is said.

XTTS users complain of nothing more than of hallucinated tails. `check_codes` is pure: it finds them from the codes,
from whether the model stopped, and from where its alignment heads looked. `generate_checked` acts on it;
`stream_checked` hands out what it makes while it is made: what was played cannot be taken back, so it is cut instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from myxtts.config.checks import at_least
from myxtts.config.speaking import Sampling
from myxtts.synthesis.generation import Generated, Generator

_NEIGHBOURS = 5
"""Codes over which a look of the heads is steadied: a phone takes about two."""


@dataclass(frozen=True, kw_only=True)
class HallucinationChecks:
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


def expected_limit(text_tokens: int, checks: HallucinationChecks) -> int:
    """Codes within which a text of so many tokens should have stopped."""
    return int(text_tokens * checks.codes_per_token) + checks.spare_codes


def loop_start(codes: np.ndarray, checks: HallucinationChecks) -> int | None:
    """Index where the codes begin to repeat one pattern until their end, or None."""
    count = len(codes)
    for period in range(1, min(checks.loop_period, count // 2) + 1):
        different = np.flatnonzero(codes[period:] != codes[:-period])
        start = int(different[-1]) + 1 if len(different) else 0
        if count - start >= max(checks.loop_codes, 3 * period):
            # One full turn of the pattern may be speech.
            return start + period
    return None


def check_codes(
    codes: np.ndarray,
    stopped: bool,
    text_tokens: int,
    checks: HallucinationChecks,
    spoken_token: np.ndarray | None = None,
    last_sounding: int | None = None,
) -> Verdict:
    """The first fault of a row, worst first.

    `spoken_token` is where the alignment heads looked for each code, `last_sounding` the last token that they ever have
    reason to look at: the full stop behind it takes no time.
    """
    loop = loop_start(codes, checks)
    if loop is not None:
        return Verdict("loop", loop)
    looked_at = smoothed_tokens(spoken_token) if spoken_token is not None and len(spoken_token) else None
    last = text_tokens - 1 if last_sounding is None else last_sounding
    end = None if looked_at is None else _text_end(looked_at, last)
    if end is not None and len(codes) - end > checks.tail_codes:
        return Verdict("tail", end + checks.tail_codes)
    if not stopped:
        got = len(codes) if looked_at is None else _last_advance(looked_at) + checks.tail_codes
        return Verdict("no stop", min(got, len(codes)))
    if len(codes) < max(1, int(text_tokens * checks.least_codes_per_token)):
        return Verdict("short", len(codes))
    if looked_at is not None and _most_left_out(looked_at, last) > checks.skip_tokens:
        return Verdict("skip", len(codes))
    return Verdict(None, len(codes))


def smoothed_tokens(spoken_token: np.ndarray) -> np.ndarray:
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


log = logging.getLogger(__name__)

_FAULT_RANK = (None, "skip", "tail", "loop", "no stop", "short")
"""From best to worst: what to prefer when no attempt was good."""

STREAMED_CODES = 20
"""Codes in a part of a stream: nearly a second."""

_LOOKS_LIKE_A_LOOP = 8
"""Codes of a repeating pattern that a stream holds back until the pattern breaks."""


@dataclass(frozen=True)
class Spoken:
    """One text's codes after the checks, and what they did."""

    codes_N: np.ndarray
    latents_ND: np.ndarray
    spoken_token_N: np.ndarray
    """Text token of each code; empty without alignment heads."""
    fault: str | None
    """What is still wrong with it; None where all is well."""
    attempts: int
    cut_codes: int
    """Codes that were cut off the end."""
    note: str | None
    """What the checks did, in words; None where they did nothing."""


def generate_checked(
    generator: Generator,
    latents_BLD: Any,
    text_BU: Any,
    text_lengths_B: Sequence[int] | np.ndarray,
    *,
    sampling: Sampling | None = None,
    seeds: int | Sequence[int] = 0,
    checks: HallucinationChecks | None = None,
    last_sounding: Sequence[int] | None = None,
) -> list[Spoken]:
    """Codes for each text. Rows with a fault are generated again, alone, up to `checks.retries` times.

    `last_sounding` is, for each text, the index of its last token that makes a sound; without it, the last token.
    """
    checks = checks or HallucinationChecks()
    text_BU, lengths = np.asarray(text_BU, np.int32), np.asarray(text_lengths_B, np.int32)
    latents_BLD = np.broadcast_to(np.asarray(latents_BLD), (len(text_BU), *np.shape(latents_BLD)[1:]))
    first_seeds = np.broadcast_to(np.asarray(seeds, np.int64), (len(text_BU),))
    best: dict[int, tuple[Verdict, Generated, int]] = {}
    attempts = np.zeros(len(text_BU), np.int32)
    rows = list(range(len(text_BU)))
    for attempt in range(checks.retries + 1):
        made = generator.generate(
            latents_BLD[rows],
            text_BU[rows],
            lengths[rows],
            sampling=sampling,
            seeds=[_attempt_seed(int(first_seeds[row]), attempt) for row in rows],
            max_codes=[expected_limit(int(lengths[row]), checks) for row in rows],
        )
        for place, row in enumerate(rows):
            attempts[row] += 1
            last = None if last_sounding is None else last_sounding[row]
            verdict = _verdict(generator, made, place, int(lengths[row]), checks, last)
            if row not in best or _FAULT_RANK.index(verdict.fault) < _FAULT_RANK.index(best[row][0].fault):
                best[row] = (verdict, made, place)
        rows = [row for row in rows if not best[row][0].good]
        if not rows:
            break
    return [_spoken(*best[row], int(attempts[row])) for row in range(len(text_BU))]


def stream_checked(
    generator: Generator,
    latents_1LD: Any,
    ids: Sequence[int],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    checks: HallucinationChecks | None = None,
    last_sounding: int | None = None,
) -> Iterator[tuple[np.ndarray, Spoken | None]]:
    """Latents of one text as they are made; with the last of them, everything that was made.

    What the checks may yet cut is held back. As long as nothing was handed out, a fault is tried again as
    `generate_checked` does; without checks nothing is.
    """
    text_1U, limit = np.asarray([ids], np.int32), generator.gpt.config.max_audio_tokens
    if checks is not None:
        limit = min(limit, expected_limit(len(ids), checks))
    made: Generated | None = None
    out = 0
    for part in generator.stream(
        latents_1LD, text_1U, [len(ids)], chunk=STREAMED_CODES, sampling=sampling, seeds=seed, max_codes=limit
    ):
        made = part if made is None else _joined(made, part)
        count = int(made.lengths_B[0])
        if not made.stopped_B[0] and count < limit:
            safe = count if checks is None else _surely_kept(generator, made, len(ids), checks, last_sounding)
            if safe >= out + STREAMED_CODES:
                yield made.latents_BND[0, out:safe], None
                out = safe
            continue
        if checks is None:
            spoken = as_it_came(made, 0)
        else:
            verdict = _verdict(generator, made, 0, len(ids), checks, last_sounding)
            if not verdict.good and out == 0:
                lasts = None if last_sounding is None else [last_sounding]
                options: dict[str, Any] = {"sampling": sampling, "seeds": seed, "checks": checks}
                [spoken] = generate_checked(generator, latents_1LD, text_1U, [len(ids)], last_sounding=lasts, **options)
            else:
                spoken = _heard(verdict, made, out)
        yield spoken.latents_ND[out:], spoken
        return


def as_it_came(made: Generated, place: int) -> Spoken:
    """One row without checks."""
    stopped = bool(made.stopped_B[place])
    verdict = Verdict(None if stopped else "no stop", int(made.lengths_B[place]))
    return _kept(verdict, made, place, 1, None if stopped else "it did not stop by itself")


def _joined(first: Generated, then: Generated) -> Generated:
    """Two parts of one text; padding behind a part is left out."""
    ends = int(first.lengths_B[0]), int(then.lengths_B[0])

    def both(name: str) -> np.ndarray:
        parts = zip((first, then), ends, strict=True)
        return np.concatenate([getattr(part, name)[:, :end] for part, end in parts], axis=1)

    return Generated(
        both("codes_BN"), first.lengths_B + then.lengths_B, then.stopped_B, both("latents_BND"), both("spoken_token_BN")
    )


def _surely_kept(
    generator: Generator, made: Generated, text_tokens: int, checks: HallucinationChecks, last_sounding: int | None
) -> int:
    """Codes that would be kept if speech went wrong from here on: not what may be the beginning of a loop or a tail."""
    eager = replace(checks, loop_codes=min(checks.loop_codes, _LOOKS_LIKE_A_LOOP))
    return _verdict(generator, made, 0, text_tokens, eager, last_sounding).keep


def _heard(verdict: Verdict, made: Generated, out: int) -> Spoken:
    """The end of a stream of which `out` codes are with the listener."""
    if verdict.good:
        return _kept(verdict, made, 0, 1, None)
    kept = Verdict(verdict.fault, max(verdict.keep, out))
    return _kept(kept, made, 0, 1, f"{kept.fault}, too late to try again: {_done(kept, int(made.lengths_B[0]))}")


def _attempt_seed(seed: int, attempt: int) -> int:
    """A seed of its own for every retry, far from the seeds that a caller would count up."""
    return (seed + attempt * 1_000_003) % (2**31 - 1)


def _verdict(
    generator: Generator,
    made: Generated,
    place: int,
    text_tokens: int,
    checks: HallucinationChecks,
    last_sounding: int | None,
) -> Verdict:
    count = int(made.lengths_B[place])
    codes_N = made.codes_BN[place, :count]
    spoken_N = made.spoken_token_BN[place][:count]
    return check_codes(codes_N, bool(made.stopped_B[place]), text_tokens, checks, spoken_N, last_sounding)


def _spoken(verdict: Verdict, made: Generated, place: int, attempts: int) -> Spoken:
    note = None
    if not verdict.good:
        done = _done(verdict, int(made.lengths_B[place]))
        note = f"{verdict.fault} in the best of {attempts} attempts: {done}"
    elif attempts > 1:
        note = f"good at attempt {attempts}"
    return _kept(verdict, made, place, attempts, note)


def _done(verdict: Verdict, count: int) -> str:
    return f"its last {count - verdict.keep} codes were cut" if verdict.keep < count else "it was kept whole"


def _kept(verdict: Verdict, made: Generated, place: int, attempts: int, note: str | None) -> Spoken:
    count = int(made.lengths_B[place])
    keep = min(verdict.keep, count)
    if note:
        log.warning("speech guard: %s", note)
    return Spoken(
        codes_N=made.codes_BN[place, :keep],
        latents_ND=made.latents_BND[place, :keep],
        spoken_token_N=made.spoken_token_BN[place][:keep],
        fault=verdict.fault,
        attempts=attempts,
        cut_codes=count - keep,
        note=note,
    )
