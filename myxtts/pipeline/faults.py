"""What a pipeline says when a phase hangs or does not stop.

Decides which phase is to blame from the phases' clocks, and shows where its thread stands.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping

from myxtts.errors import PipelineError
from myxtts.pipeline.telemetry import Activity

HANG_HINT = (
    "the stack below shows where it stands: in reading, see to the disk or network that --train-data is on; in "
    "computing, lower --batch-size; the same command continues from the last checkpoint"
)

FIRST_BATCH_WARNING = (
    "the %s phase has been busy with its first batch for %.0f s and training waits for it; a GPU that TensorFlow has "
    "no binaries for compiles them first, which may take half an hour and is done once"
)
"""Before a phase's first batch there is no limit."""


def stack_of(thread: threading.Thread) -> str:
    """Where a thread stands now, as a traceback prints it."""
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return f"  (thread {thread.name} has ended)"
    return "".join(traceback.format_stack(frame)).rstrip()


def hung_phase(activities: Mapping[str, tuple[Activity, float]], timeout_s: float) -> str | None:
    """The first phase, in the order given, that has been busy with one batch for longer than `timeout_s`.

    A phase that waits is never to blame: whoever it waits for is, or is only slow.
    """
    for phase, (activity, seconds) in activities.items():
        if activity is Activity.BUSY and seconds > timeout_s:
            return phase
    return None


def hang_error(phase: str, seconds: float, thread: threading.Thread) -> PipelineError:
    return PipelineError(
        f"the {phase} phase has been busy with one batch for {seconds:.0f} s and training waits for it",
        hint=f"{HANG_HINT}\nstack of thread {thread.name}:\n{stack_of(thread)}",
    )
