"""Diagnosis of a window's figures, in words, with the flag to change.

Pure: the console, the report and the trainer's warnings use the same sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from myxtts.monitoring.figures import WindowFigures, average
from myxtts.monitoring.words import percent

STARVING_STALL = 0.05
"""A model device that waits for data for more than this share of the time is starving."""

STARVING_PART = 0.02
"""Starvation for less than this share of a stage's time is not reported."""

SLOW_PADDING = 0.25
SWINGING = 0.1
FULL_BUFFER = 0.5
"""A buffer that is fuller than this share on average is not what training waits for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One diagnosis: how serious, what is the case, and what to do (empty where all is well)."""

    level: Literal["good", "warning"]
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.advice}" if self.advice else self.problem


def diagnose(figures: WindowFigures) -> Verdict:
    """The most important finding of a window."""
    busy = f"model device {percent(figures.model_busy)} busy"
    if figures.steps == 0:
        return Verdict("warning", "no step was finished in this window", "wait, or look for a hung phase in the log")
    if figures.stall_share > STARVING_STALL:
        problem, advice = _starving(figures)
        return Verdict("warning", f"{busy}, {percent(figures.stall_share)} waiting for data; {problem}", advice)
    if figures.oscillation is not None and figures.oscillation > SWINGING:
        return Verdict(
            "warning",
            f"{busy}, but its load swings by {percent(figures.oscillation)}",
            f"raise --buffer-size (now {figures.buffer_capacity}) so that uneven batches even out",
        )
    if figures.padding_share is not None and figures.padding_share > SLOW_PADDING:
        return Verdict(
            "warning",
            f"{busy}, but {percent(figures.padding_share)} of what it computes is padding",
            "leave out --batch-size, so that batches are filled by --batch-seconds in buckets of like length",
        )
    if figures.shares_device:
        return Verdict("good", _shared_device(figures), "")
    return Verdict("good", f"{busy}, data device {percent(figures.data_busy)}; training does not wait for data", "")


def diagnose_stage(windows: Sequence[WindowFigures]) -> list[Verdict]:
    """The whole stage, and the share of its time in which the model device starved where the mean hides that."""
    whole = diagnose(average(windows))
    starving = [window for window in windows if window.stall_share > STARVING_STALL]
    share = sum(window.seconds for window in starving) / (sum(window.seconds for window in windows) or 1.0)
    if whole.level == "warning" or share < STARVING_PART:
        return [whole]
    worst = diagnose(average(starving))
    return [whole, Verdict("warning", f"in {percent(share)} of the time: {worst.problem}", worst.advice)]


def _starving(figures: WindowFigures) -> tuple[str, str]:
    """The bottleneck that the model device waits for, and the flag that helps."""
    source, process, transfer = (figures.phase(name) for name in ("source", "process", "transfer"))
    full = figures.buffer_capacity and figures.buffer_depth > FULL_BUFFER * figures.buffer_capacity
    if not figures.shares_device and process.busy >= max(source.busy, transfer.busy) and process.busy > 0.8:
        return (
            f"the data device is the bottleneck ({percent(process.busy)} busy)",
            "give --data-gpu the faster GPU, or a second one (--data-gpu 0,1), or train on one device without it",
        )
    if source.busy > 0.8:
        return (
            f"reading batches is the bottleneck ({percent(source.busy)} busy)",
            "raise --num-workers",
        )
    if transfer.busy > 0.8:
        return (
            f"the transfer to the model device is the bottleneck ({percent(transfer.busy)} busy)",
            "lower --batch-size, or choose two GPUs that are linked",
        )
    if full and transfer.waiting < figures.stall_share / 2:
        return "steps are so short that handing over counts", "raise --batch-size"
    # No phase is saturated, so each is fast enough on average and a larger buffer evens out late batches. A buffer
    # that is full on average does not exclude that: it is full between two late batches too.
    return "no phase is always busy: batches come unevenly", f"raise --buffer-size (now {figures.buffer_capacity})"


def _shared_device(figures: WindowFigures) -> str:
    share = figures.phase("process").busy
    sentence = f"device {percent(figures.model_busy)} busy, {percent(share)} of the time with data work"
    if share > 0.25 and not figures.data_devices[0].startswith("/CPU"):
        sentence += " that a second GPU could take over (--data-gpu, --model-gpu)"
    return sentence
