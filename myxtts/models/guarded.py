"""Generation that notices when it goes wrong, tries again with another seed, and says what it did.

`stream_guarded` hands out what it makes while it is made: what was heard cannot be taken back, so it is cut instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from myxtts.config.speaking import Sampling
from myxtts.models.generation import Generated, Generator
from myxtts.models.guards import GuardConfig, Verdict, expected_limit, judge

log = logging.getLogger(__name__)

_FAULT_RANK = (None, "skip", "tail", "loop", "no stop", "short")
"""From best to worst: what to prefer when no attempt was good."""

STREAMED_CODES = 20
"""Codes in a part of a stream: nearly a second."""

_LOOKS_LIKE_A_LOOP = 8
"""Codes of a repeating pattern that a stream holds back until the pattern breaks."""


@dataclass(frozen=True)
class Spoken:
    """One text's codes after the guards, and what they did."""

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
    """What the guards did, in words; None where they did nothing."""


def generate_guarded(
    generator: Generator,
    latents_BLD: Any,
    text_BU: Any,
    text_lengths_B: Sequence[int] | np.ndarray,
    *,
    sampling: Sampling | None = None,
    seeds: int | Sequence[int] = 0,
    guards: GuardConfig | None = None,
    last_sounding: Sequence[int] | None = None,
) -> list[Spoken]:
    """Codes for each text. Rows with a fault are generated again, alone, up to `guards.retries` times.

    `last_sounding` is, for each text, the index of its last token that makes a sound; without it, the last token.
    """
    guards = guards or GuardConfig()
    text_BU, lengths = np.asarray(text_BU, np.int32), np.asarray(text_lengths_B, np.int32)
    latents_BLD = np.broadcast_to(np.asarray(latents_BLD), (len(text_BU), *np.shape(latents_BLD)[1:]))
    first_seeds = np.broadcast_to(np.asarray(seeds, np.int64), (len(text_BU),))
    best: dict[int, tuple[Verdict, Generated, int]] = {}
    attempts = np.zeros(len(text_BU), np.int32)
    rows = list(range(len(text_BU)))
    for attempt in range(guards.retries + 1):
        made = generator.generate(
            latents_BLD[rows],
            text_BU[rows],
            lengths[rows],
            sampling=sampling,
            seeds=[_attempt_seed(int(first_seeds[row]), attempt) for row in rows],
            max_codes=[expected_limit(int(lengths[row]), guards) for row in rows],
        )
        for place, row in enumerate(rows):
            attempts[row] += 1
            last = None if last_sounding is None else last_sounding[row]
            verdict = _verdict(generator, made, place, int(lengths[row]), guards, last)
            if row not in best or _FAULT_RANK.index(verdict.fault) < _FAULT_RANK.index(best[row][0].fault):
                best[row] = (verdict, made, place)
        rows = [row for row in rows if not best[row][0].good]
        if not rows:
            break
    return [_spoken(*best[row], int(attempts[row])) for row in range(len(text_BU))]


def stream_guarded(
    generator: Generator,
    latents_1LD: Any,
    ids: Sequence[int],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    guards: GuardConfig | None = None,
    last_sounding: int | None = None,
) -> Iterator[tuple[np.ndarray, Spoken | None]]:
    """Latents of one text as they are made; with the last of them, everything that was made.

    What the guards may yet cut is held back. As long as nothing was handed out, a fault is tried again as
    `generate_guarded` does; without guards nothing is.
    """
    text_1U, limit = np.asarray([ids], np.int32), generator.gpt.config.max_audio_tokens
    if guards is not None:
        limit = min(limit, expected_limit(len(ids), guards))
    made: Generated | None = None
    out = 0
    for part in generator.stream(
        latents_1LD, text_1U, [len(ids)], chunk=STREAMED_CODES, sampling=sampling, seeds=seed, max_codes=limit
    ):
        made = part if made is None else _joined(made, part)
        count = int(made.lengths_B[0])
        if not made.stopped_B[0] and count < limit:
            safe = count if guards is None else _surely_kept(generator, made, len(ids), guards, last_sounding)
            if safe >= out + STREAMED_CODES:
                yield made.latents_BND[0, out:safe], None
                out = safe
            continue
        if guards is None:
            spoken = as_it_came(made, 0)
        else:
            verdict = _verdict(generator, made, 0, len(ids), guards, last_sounding)
            if not verdict.good and out == 0:
                lasts = None if last_sounding is None else [last_sounding]
                options: dict[str, Any] = {"sampling": sampling, "seeds": seed, "guards": guards}
                [spoken] = generate_guarded(generator, latents_1LD, text_1U, [len(ids)], last_sounding=lasts, **options)
            else:
                spoken = _heard(verdict, made, out)
        yield spoken.latents_ND[out:], spoken
        return


def as_it_came(made: Generated, place: int) -> Spoken:
    """One row without guards."""
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
    generator: Generator, made: Generated, text_tokens: int, guards: GuardConfig, last_sounding: int | None
) -> int:
    """Codes that would be kept if speech went wrong from here on: not what may be the beginning of a loop or a tail."""
    eager = replace(guards, loop_codes=min(guards.loop_codes, _LOOKS_LIKE_A_LOOP))
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
    generator: Generator, made: Generated, place: int, text_tokens: int, guards: GuardConfig, last_sounding: int | None
) -> Verdict:
    count = int(made.lengths_B[place])
    codes_N = made.codes_BN[place, :count]
    spoken_N = made.spoken_token_BN[place][:count]
    return judge(codes_N, bool(made.stopped_B[place]), text_tokens, guards, spoken_N, last_sounding)


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
