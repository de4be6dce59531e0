"""Runs as the page shows them: a folder of run folders, each read through its `events.jsonl`.

A run is known by its place in the listing's names only: nothing that a client sends becomes a path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from myxtts.monitoring.charts import Point, smooth, thin
from myxtts.monitoring.events import EventFollower
from myxtts.monitoring.report import AUDIO_TYPES, render_report
from myxtts.monitoring.run_state import RunState, read_state
from myxtts.monitoring.verdict import diagnose_stage
from myxtts.serving.errors import RequestError

MOST_POINTS = 240
MOST_SAMPLES = 12
_LOG = "events.jsonl"


class RunFolder:
    """The runs directly inside of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """The newest first."""
        logs = [path for path in self._folder.glob(f"*/{_LOG}") if path.is_file()]
        return [path.parent.name for path in sorted(logs, key=_modified, reverse=True)]

    def find(self, name: str) -> Path:
        if name not in self.names():
            raise RequestError(
                "there is no such run", hint="GET /v1/runs lists them", status=404, param="id", code="run_not_found"
            )
        return self._folder / name

    def listing(self) -> list[dict[str, Any]]:
        return [{"id": name, "modified_at": int(_modified(self._folder / name / _LOG))} for name in self.names()]

    def sample(self, name: str, number: str) -> tuple[bytes, str]:
        """The audio of a sample and its media type; never a file outside of the run's folder."""
        folder = self.find(name)
        samples = read_state(folder / _LOG).samples
        path = folder / samples[int(number)].path if _is_place(number, len(samples)) else folder
        kind = AUDIO_TYPES.get(path.suffix.lower())
        if kind is None or not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise RequestError(
                "there is no such sample", hint="it may be deleted", status=404, param="number", code="sample_not_found"
            )
        return path.read_bytes(), kind

    def report(self, name: str) -> str:
        folder = self.find(name)
        return render_report(read_state(folder / _LOG), folder)


class RunView:
    """One run while it is watched: `poll` gives what to show, as JSON, where there is anything new."""

    def __init__(self, folder: Path) -> None:
        self._name = folder.name
        self._follower = EventFollower(folder / _LOG)
        self._state = RunState()
        self._last = ""

    def poll(self) -> str | None:
        for event in self._follower.poll():
            self._state.apply(event)
        self._state.skipped = self._follower.skipped
        self._state.looked_at = time.time()
        shown = json.dumps(snapshot(self._name, self._state), ensure_ascii=False, allow_nan=False)
        if shown == self._last:
            return None
        self._last = shown
        return shown


def snapshot(name: str, state: RunState) -> dict[str, Any]:
    """All that the page shows of a run."""
    window = state.window
    return {
        "id": name,
        "ended": None if state.ended is None else {"reason": state.ended.reason, "message": state.ended.message},
        "silent_s": None if state.silent_s is None else round(state.silent_s / 60) * 60,
        "task": state.task,
        "stage": state.stage,
        "stages_done": state.stages_done,
        "step": state.step,
        "total_steps": state.total_steps,
        "loss": _short(state.smooth_loss),
        "steps_per_s": _short(state.steps_per_s),
        "eta_s": None if state.eta_s is None else round(state.eta_s),
        "elapsed_s": round(state.elapsed_s),
        "devices": [{"name": device, "busy": _short(busy)} for device, busy in window.device_busy.items()]
        if window
        else [],
        "data_devices": list(window.data_devices) if window else [],
        "stall": _short(window.stall_share) if window else None,
        "buffer": {"depth": _short(window.buffer_depth), "capacity": window.buffer_capacity} if window else None,
        "memory": {role: _short(reading.current_mb) for role, reading in state.memory.items()},
        "curves": [_curves(stage, state) for stage in state.history],
        "verdicts": _verdicts(state),
        "warnings": [{"message": one.message, "hint": one.hint} for one in state.warnings[-5:]],
        "samples": _samples(state),
        "skipped": state.skipped,
    }


def _curves(stage: str, state: RunState) -> dict[str, Any]:
    history = state.history[stage]
    losses = [(float(point.step), point.loss) for point in history.points if point.loss is not None]
    known = [(float(step), loss) for step, loss in history.validations if loss is not None]
    return {"stage": stage, "loss": _points(smooth(losses)), "validation": _points(known)}


def _points(points: Sequence[Point]) -> list[list[float | None]]:
    return [[_short(x), _short(y)] for x, y in thin(points, MOST_POINTS)]


def _verdicts(state: RunState) -> list[dict[str, str]]:
    found = []
    for stage in state.history:
        windows = [figures for _, name, figures in state.windows if name == stage]
        found += [
            {"stage": stage, "level": verdict.level, "text": str(verdict)}
            for verdict in (diagnose_stage(windows) if windows else [])
        ]
    return found


def _samples(state: RunState) -> list[dict[str, Any]]:
    """The last ones, by their place among all."""
    last = list(enumerate(state.samples))[-MOST_SAMPLES:]
    return [
        {"number": number, "stage": one.stage, "step": one.step, "text": one.text or ""} for number, one in last[::-1]
    ]


def _is_place(number: str, count: int) -> bool:
    return number.isascii() and number.isdecimal() and len(number) < 9 and int(number) < count


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
