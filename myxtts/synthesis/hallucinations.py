"""Hallucination checks: speech that does not end, repeats itself or leaves words out is generated again with another
seed, and what stays wrong is cut and reported.

`check_codes` is pure: it finds faults from the codes, from whether the model stopped, and from the text tokens that its
alignment heads attend to. `generate_checked` acts on it; `stream_checked` yields latents while they are generated:
what was yielded cannot be taken back, so a late fault is cut instead. Works with any runtime; no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from myxtts.config.checks import at_least
from myxtts.synthesis.speech_model import CheckedCodes, CodeGenerator, Generated, Text, TextBatch

STREAMED_CODES = 20
"""Codes in a part of a stream: nearly a second."""
_NEIGHBOURS = 5
"""Window in codes of the median over the attended tokens: a phone takes about two codes."""
_FAULT_RANK = (None, "skip", "tail", "loop", "no stop", "short")
"""From best to worst: what to prefer when no attempt was without fault."""
_POSSIBLE_LOOP = 8
"""Codes of a repeating pattern that a stream holds back until the pattern breaks."""


@dataclass(frozen=True, kw_only=True)
class HallucinationChecks:
    """Limits beyond which speech counts as hallucinated. There are 21.5 codes in a second."""

    codes_per_token: float = 10.0
    """Most codes that one text token takes on average; speech has about 2 for a phoneme and 5 for a byte-pair piece."""

    spare_codes: int = 40
    """Codes allowed beside those, for pauses and very short texts."""

    loop_codes: int = 32
    """A pattern must fill at least so many codes at the end to count as a loop; pauses are shorter."""

    loop_period: int = 16
    """Longest pattern that counts, in codes."""

    least_codes_per_token: float = 0.4
    """Fewer codes for each text token are too few to speak it; the fastest speakers have about 1."""

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

    def once(self) -> HallucinationChecks:
        """The same limits without retries."""
        return replace(self, retries=0)


@dataclass(frozen=True)
class CheckResult:
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
) -> CheckResult:
    """The first fault of a row, worst first.

    `spoken_token` is the text token that the alignment heads attend to for each code; `last_sounding` is the last token
    of the text that is pronounced: the full stop behind it takes no time.
    """
    count, loop = len(codes), loop_start(codes, checks)
    if loop is not None:
        return CheckResult("loop", loop)
    attended = smoothed_tokens(spoken_token) if spoken_token is not None and len(spoken_token) else None
    last = text_tokens - 1 if last_sounding is None else last_sounding
    if attended is not None:
        # From the code behind the last look back on, the heads attend to the end; they are a token off at times.
        before_end = np.flatnonzero(attended < last - 1)
        end = int(before_end[-1]) + 1 if len(before_end) else 0
        if end < len(attended) and count - end > checks.tail_codes:
            return CheckResult("tail", end + checks.tail_codes)
    if not stopped:
        # No new text follows the code at which the alignment first attends to its furthest token.
        keep = count if attended is None else int(np.argmax(attended)) + checks.tail_codes
        return CheckResult("no stop", min(keep, count))
    if count < max(1, int(text_tokens * checks.least_codes_per_token)):
        return CheckResult("short", count)
    if attended is not None:
        furthest = np.maximum.accumulate(np.concatenate([[0], attended]))
        if max(np.max(np.diff(furthest)), last - furthest[-1]) > checks.skip_tokens:
            return CheckResult("skip", count)
    return CheckResult(None, count)


def smoothed_tokens(spoken_token: np.ndarray) -> np.ndarray:
    """The attended tokens without outliers of a code or two: the median of five neighbours."""
    if len(spoken_token) < _NEIGHBOURS:
        return spoken_token
    mirrored = np.pad(spoken_token, _NEIGHBOURS // 2, mode="reflect")
    medians: np.ndarray = np.median(sliding_window_view(mirrored, _NEIGHBOURS), axis=-1).astype(spoken_token.dtype)
    return medians


def generate_checked(
    generator: CodeGenerator,
    texts: TextBatch,
    *,
    checks: HallucinationChecks | None = HallucinationChecks(),  # noqa: B008 - frozen, so shared safely
    last_sounding: Sequence[int] | None = None,
) -> list[CheckedCodes]:
    """Codes for each text. Rows with a fault are generated again, alone, up to `checks.retries` times.

    `last_sounding` is, for each text, the index of its last token that is pronounced; without it, the last token.
    `checks=None` takes the first attempt as it is; with checks, the length of each text is its limit.
    """
    text_BU, lengths = np.asarray(texts.text_BU, np.int32), np.asarray(texts.lengths_B, np.int32)
    latents_BLD, first_seeds = texts.row_latents(), texts.row_seeds()
    best: dict[int, tuple[CheckResult, Generated, int]] = {}
    attempts = np.zeros(len(text_BU), np.int32)
    rows = list(range(len(text_BU)))
    for attempt in range(1 if checks is None else checks.retries + 1):
        made = generator.generate(
            TextBatch(
                latents_BLD[rows],
                text_BU[rows],
                lengths[rows],
                texts.sampling,
                [attempt_seed(first_seeds[row], attempt) for row in rows],
                None if checks is None else [expected_limit(int(lengths[row]), checks) for row in rows],
            )
        )
        for place, row in enumerate(rows):
            attempts[row] += 1
            last = None if last_sounding is None else last_sounding[row]
            result = _check_row(made, place, int(lengths[row]), checks, last)
            if row not in best or _FAULT_RANK.index(result.fault) < _FAULT_RANK.index(best[row][0].fault):
                best[row] = (result, made, place)
        rows = [row for row in rows if not best[row][0].good]
        if not rows:
            break
    return [_checked(*best[row], int(attempts[row]), checks) for row in range(len(text_BU))]


def stream_checked(
    generator: CodeGenerator,
    text: Text,
    *,
    checks: HallucinationChecks | None = None,
    last_sounding: int | None = None,
) -> Iterator[tuple[np.ndarray, CheckedCodes | None]]:
    """Latents of one text as they are generated; with the last of them, all codes of the text.

    What the checks may yet cut is held back. As long as nothing was yielded, a fault is tried again as
    `generate_checked` does; afterwards the codes are cut where the fault begins. `checks=None` does neither.
    """
    ids, limit = text.ids, generator.max_codes
    texts = TextBatch(text.latents_LD[None], np.asarray([ids], np.int32), [len(ids)], text.sampling, text.seed)
    if checks is not None:
        limit = min(limit, expected_limit(len(ids), checks))
        cautious = replace(checks, loop_codes=min(checks.loop_codes, _POSSIBLE_LOOP))
    made: Generated | None = None
    yielded = 0
    for part in generator.stream(replace(texts, max_codes=limit), chunk=STREAMED_CODES):
        made = part if made is None else _joined(made, part)
        count = int(made.lengths_B[0])
        if made.stopped_B[0] or count >= limit:
            break
        # Codes that would be kept if all that follows were wrong: not what may be the beginning of a loop or a tail.
        safe = count if checks is None else _check_row(made, 0, len(ids), cautious, last_sounding).keep
        if safe >= yielded + STREAMED_CODES:
            yield made.latents_BND[0, yielded:safe], None
            yielded = safe
    assert made is not None
    result = _check_row(made, 0, len(ids), checks, last_sounding)
    if checks is None or result.good:
        checked = _checked(result, made, 0, 1, checks)
    elif yielded:
        checked = _checked(replace(result, keep=max(result.keep, yielded)), made, 0, 1, checks, streamed=True)
    else:
        last = None if last_sounding is None else [last_sounding]
        [checked] = generate_checked(generator, texts, checks=checks, last_sounding=last)
    yield checked.latents_ND[yielded:], checked


def _joined(first: Generated, then: Generated) -> Generated:
    """Two parts of one text; padding behind a part is left out."""
    ends = int(first.lengths_B[0]), int(then.lengths_B[0])

    def both(name: str) -> np.ndarray:
        parts = zip((first, then), ends, strict=True)
        return np.concatenate([getattr(part, name)[:, :end] for part, end in parts], axis=1)

    return Generated(
        both("codes_BN"), first.lengths_B + then.lengths_B, then.stopped_B, both("latents_BND"), both("spoken_token_BN")
    )


def attempt_seed(seed: int, attempt: int) -> int:
    """A seed of its own for every retry, far from the seeds that a caller would count up."""
    return (seed + attempt * 1_000_003) % (2**31 - 1)


def _check_row(
    made: Generated, place: int, text_tokens: int, checks: HallucinationChecks | None, last_sounding: int | None
) -> CheckResult:
    """`check_codes` of one row; without checks only whether it stopped."""
    count, stopped = int(made.lengths_B[place]), bool(made.stopped_B[place])
    if checks is None:
        return CheckResult(None if stopped else "no stop", count)
    codes_N, spoken_N = made.codes_BN[place, :count], made.spoken_token_BN[place][:count]
    return check_codes(codes_N, stopped, text_tokens, checks, spoken_N, last_sounding)


def _checked(
    result: CheckResult,
    made: Generated,
    place: int,
    attempts: int,
    checks: HallucinationChecks | None,
    *,
    streamed: bool = False,
) -> CheckedCodes:
    """One row, cut as the checks found, with a note of what was done."""
    count = int(made.lengths_B[place])
    keep = min(result.keep, count)
    done = f"its last {count - keep} codes were cut" if keep < count else "it was kept whole"
    note = None
    if not result.good and checks is None:
        note = "it did not stop by itself"
    elif not result.good:
        tried = "too late to try again" if streamed else f"in the best of {attempts} attempts"
        note = f"{result.fault}{',' if streamed else ''} {tried}: {done}"
    elif attempts > 1:
        note = f"good at attempt {attempts}"
    return CheckedCodes(
        codes_N=made.codes_BN[place, :keep],
        latents_ND=made.latents_BND[place, :keep],
        spoken_token_N=made.spoken_token_BN[place][:keep],
        fault=result.fault,
        attempts=attempts,
        cut_codes=count - keep,
        note=note,
    )
