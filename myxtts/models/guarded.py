"""Generation that notices when it goes wrong, tries again with another seed, and says what it did."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from myxtts.models.generation import Generated, Generator
from myxtts.models.guards import GuardConfig, Verdict, expected_limit, judge
from myxtts.models.sampling import Sampling

log = logging.getLogger(__name__)

_FAULT_RANK = (None, "skip", "tail", "loop", "no stop", "short")
"""From best to worst: what to prefer when no attempt was good."""


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
) -> list[Spoken]:
    """Codes for each text. Rows with a fault are generated again, alone, up to `guards.retries` times."""
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
            verdict = _verdict(made, place, int(lengths[row]), guards)
            if row not in best or _FAULT_RANK.index(verdict.fault) < _FAULT_RANK.index(best[row][0].fault):
                best[row] = (verdict, made, place)
        rows = [row for row in rows if not best[row][0].good]
        if not rows:
            break
    return [_spoken(*best[row], int(attempts[row])) for row in range(len(text_BU))]


def _attempt_seed(seed: int, attempt: int) -> int:
    """A seed of its own for every retry, far from the seeds that a caller would count up."""
    return (seed + attempt * 1_000_003) % (2**31 - 1)


def _verdict(made: Generated, place: int, text_tokens: int, guards: GuardConfig) -> Verdict:
    count = int(made.lengths_B[place])
    spoken = made.spoken_token_BN[place][:count]
    return judge(made.codes_BN[place, :count], bool(made.stopped_B[place]), text_tokens, guards, spoken)


def _spoken(verdict: Verdict, made: Generated, place: int, attempts: int) -> Spoken:
    count = int(made.lengths_B[place])
    keep = min(verdict.keep, count)
    note = None
    if not verdict.good:
        done = f"its last {count - keep} codes were cut" if keep < count else "it was kept whole"
        note = f"{verdict.fault} in the best of {attempts} attempts: {done}"
    elif attempts > 1:
        note = f"good at attempt {attempts}"
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
