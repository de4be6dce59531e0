"""A run on the terminal: a live panel, or plain lines where there is no terminal. It draws a `RunState`."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from myxtts.monitoring import schema
from myxtts.monitoring.events import EventFollower, EventLog
from myxtts.monitoring.run_state import RunState, TimedWarning, skipped_words
from myxtts.monitoring.schema import Event, LeakEvent, MemoryReading, WarningEvent
from myxtts.monitoring.verdict import diagnose
from myxtts.monitoring.words import number, percent

logger = logging.getLogger(__name__)

PLAIN_EVERY_S = 10.0
SPARKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 40
BAR_WIDTH = 24
HALF_BAR_WIDTH = 16
NARROW = 64
"""Terminal width below which there is no room for bars beside what they show."""
TWO_COLUMNS = 140
"""Terminal width from which a device's line fits into half of it."""
PROCESS_MEMORY = "process RSS"
"""Source of a reading that is the whole process's: a CPU device has no memory of its own."""

RECENT_WARNING_S = 600.0


class _Console(Console):
    """Raises what rich would end the process for."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class LiveConsole:
    """Shows events as they come. A subscriber of `EventLog`, or fed by `myxtts monitor`."""

    def __init__(
        self,
        *,
        stream: TextIO | None = None,
        plain: bool | None = None,
        width: int | None = None,
        warnings_logged: bool = False,
    ) -> None:
        """`plain` forces plain lines (True) or the panel (False); by default a terminal decides.

        `warnings_logged`: the run itself logs its warnings to the same place, so plain lines do not repeat them.
        """
        self._warnings_logged = warnings_logged
        forced = True if plain is False else None
        self._console = _Console(file=stream or sys.stderr, width=width, highlight=False, force_terminal=forced)
        self._plain = not self._console.is_terminal if plain is None else plain
        self.state = RunState()
        self._live: Live | None = None
        self._redirected: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        self._said_at: float | None = None

    def __enter__(self) -> LiveConsole:
        if not self._plain:
            self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self._panel)
            before = (sys.stdout, sys.stderr)
            self._live.start()
            self._redirect_logging(before)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            for handler, stream in self._redirected:
                handler.setStream(stream)
            with suppress(OSError):  # its terminal is gone
                self._live.stop()
            self._live = None

    def follow(self, log: EventLog) -> None:
        """Show what is written to a run's log from now on; events from before a resume only update the state."""
        follower = EventFollower(log.path)
        try:
            for event in follower.poll():
                self.state.apply(event)
        except OSError as error:
            logger.warning("earlier events are not shown: %s cannot be read: %s", log.path, error.strerror)
        self.state.skipped = follower.skipped
        if words := skipped_words(self.state):
            logger.warning("%s", words)
        log.subscribe(self.on_event)

    def on_event(self, event: Event) -> None:
        self.state.apply(event)
        said_already = self._warnings_logged and isinstance(event, (WarningEvent, LeakEvent))
        if self._plain and not said_already:
            line = plain_line(self.state, event, self._said_at)
            if line is not None:
                self._said_at = event.time
                self._console.print(line, markup=False, soft_wrap=True)

    def _panel(self) -> RenderableType:
        return render(self.state, self._console.width)

    def _redirect_logging(self, streams: Sequence[TextIO]) -> None:
        """Log lines are to scroll above the panel; handlers hold the streams from before rich replaced them."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
                self._redirected.append((handler, handler.stream))
                handler.setStream(sys.stderr)


def print_snapshot(state: RunState, *, stream: TextIO, plain: bool | None = None, width: int | None = None) -> None:
    """One picture of a run, as `myxtts monitor --once` prints it."""
    console = _Console(file=stream, width=width, highlight=False)
    if not console.is_terminal if plain is None else plain:
        for line in snapshot_lines(state):
            console.print(line, markup=False, soft_wrap=True)
    else:
        console.print(render(state, console.width))


def render(state: RunState, width: int) -> RenderableType:
    """The panel for a terminal of `width` columns."""
    parts: list[RenderableType] = [_progress(state, width)]
    halves = width >= TWO_COLUMNS
    room = max(1, (width // 2 - 2 if halves else width) - 14)  # beside a label, within the frame
    speed = _speed(state, room)
    devices = _devices(state, HALF_BAR_WIDTH if halves else BAR_WIDTH if width >= NARROW else 0, room)
    if halves:
        columns = Table.grid(expand=True, padding=(0, 4, 0, 0))
        columns.add_column(ratio=1)
        columns.add_column(ratio=1)
        columns.add_row(speed, devices)
        parts.append(columns)
    else:
        parts += [speed, devices]
    parts += _words(state)
    return Panel(Group(*parts), title=_title(state), title_align="left", border_style=_border(state), padding=(0, 1))


def snapshot_lines(state: RunState) -> list[str]:
    """What the panel shows, as plain lines."""
    lines = [f"{_title(state)}: {_headline(state)}"]
    if state.task is not None and state.ended is None:
        lines.append(state.task)
    if state.window is not None:
        lines.append(str(diagnose(state.window)))
    for name, memory in state.memory.items():
        lines.append(f"memory of {memory.device or name}: {_memory_words(memory)}")
    if state.checkpoint is not None:
        lines.append(f"checkpoint at {state.checkpoint.stage} step {state.checkpoint.step:,}")
    for warning in state.warnings[-3:]:
        lines.append(f"warning {duration(_age_s(state, warning))} ago: {warning.message}: {warning.hint}")
    if words := skipped_words(state):
        lines.append(words)
    if state.silent_s is not None:
        lines.append(_silence(state.silent_s))
    if state.ended is not None:
        lines.append(_ending(state.ended))
    return lines


def _ending(end: schema.RunEndEvent) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(end.time))
    return f"{end.reason}: {end.message} (ended {at})"


def plain_line(state: RunState, event: Event, said_at: float | None) -> str | None:
    """The line of an event without a terminal; None for those that would only repeat (steps within ten seconds)."""
    due = said_at is None or event.time - said_at >= PLAIN_EVERY_S
    match event:
        case schema.StepEvent() | schema.WindowEvent():
            return _headline(state) if due else None
        case schema.ProgressEvent():
            return state.task if due else None
        case schema.TrainingStartEvent():
            return f"training starts: {event.stage} from step {event.step:,} of {_count(event.total_steps)}"
        case schema.WarmupEvent():
            return f"buffer {event.depth}/{event.capacity} after {event.waited_s:.1f} s ({event.reason})"
        case schema.ValidationEvent():
            return f"{event.stage} step {event.step:,}: validation loss {number(event.loss)}"
        case schema.CheckpointEvent():
            return f"checkpoint: {event.path}"
        case schema.StageDoneEvent():
            return f"stage {event.stage} is done at step {event.step:,}"
        case WarningEvent() | LeakEvent():
            return f"warning: {state.warnings[-1].message}: {state.warnings[-1].hint}"
        case schema.RunEndEvent() if event.reason != "failed":  # the command that failed prints the error and its hint
            return f"{event.reason}: {event.message}"
    return None


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds, or a dash."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as little bars, means of equal stretches, lowest to highest."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    height = high - low or 1.0
    return "".join(SPARKS[round((mean - low) / height * (len(SPARKS) - 1))] for mean in means)


def _title(state: RunState) -> str:
    stage = f"stage {state.stage}" if state.stage else "starting"
    stages = state.about.stages
    if state.stage in stages:
        stage += f" ({stages.index(state.stage) + 1} of {len(stages)})"
    mode = state.about.mode or state.devices.mode
    return " · ".join(["myxtts", stage] + ([mode] if mode else []))


def _border(state: RunState) -> str:
    if state.ended is None:
        return "cyan"
    return {"finished": "green", "interrupted": "yellow"}.get(state.ended.reason, "red")


def _progress(state: RunState, width: int) -> RenderableType:
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    step = Text(f"step {state.step:,} / {_count(state.total_steps)}", style="bold")
    bar = ProgressBar(total=state.total_steps or 1, completed=state.step, complete_style="cyan", finished_style="green")
    eta = "" if state.ended else f"stage ETA {duration(state.eta_s)}  "
    times = Text(f"{eta}elapsed {duration(state.elapsed_s)}")
    if width < NARROW:
        row.add_row(step, bar)
        return Group(row, times)
    row.add_column(justify="right", no_wrap=True)
    row.add_row(step, bar, times)
    return row


def _speed(state: RunState, room: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", min_width=8)
    table.add_column()
    losses = Text(number(state.smooth_loss), style="bold")
    losses.append(f"   last {number(state.loss)}", style="dim")
    table.add_row("loss", losses)
    history = state.history.get(state.stage or "")
    if history is not None:
        losses_so_far = [point.loss for point in history.points if point.loss is not None]
        table.add_row("", Text(sparkline(losses_so_far, min(SPARKLINE_WIDTH, room)), style="cyan"))
    if history is not None and history.validations:
        step, loss = history.validations[-1]
        table.add_row("held out", f"{number(loss)} at step {step:,}")
    window = state.window
    speed = [f"{number(state.steps_per_s, 3)} steps/s"]
    if window is not None and window.audio_seconds_per_s is not None:
        speed.append(f"{window.audio_seconds_per_s:.1f} audio-s/s")
    table.add_row("speed", _beside(speed, room))
    if state.step_fields:
        shown = [f"{name} {value:.4g}" for name, value in list(state.step_fields.items())[:3]]
        table.add_row("step", _beside(shown, room))
    return table


def _devices(state: RunState, bar_width: int, room: int) -> RenderableType:
    """`bar_width` 0 leaves the bars out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", min_width=8)
    if bar_width:
        table.add_column(width=bar_width)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    window = state.window
    if window is None:
        table.add_row("devices", Text("no figures yet", style="dim"))
        return table
    for device, share in window.device_busy.items():
        roles = window.roles_of(device)
        memory = state.memory_of(device, roles[-1] if roles else "")
        table.add_row(
            "+".join(roles),
            *_bar(share, "green" if "model" in roles else "blue", bar_width),
            percent(share),
            _beside([device, _memory_words(memory)] if memory else [device], room - bar_width - 9),
        )
    capacity = window.buffer_capacity
    table.add_row(
        "buffer",
        *_bar(window.buffer_depth / capacity if capacity else 0.0, "magenta", bar_width),
        f"{window.buffer_depth:.0f}/{capacity}",
        "batches ready",
    )
    shares = {
        "stall": window.stall_share,
        "efficient": window.efficiency,
        "swing": window.oscillation,
        "padding": window.padding_share,
    }
    flow = _beside([f"{percent(share)} {name}" for name, share in shares.items()], room)
    label = Table.grid(padding=(0, 2, 0, 0))
    label.add_column(style="dim", min_width=8)
    label.add_column()
    label.add_row("flow", flow)
    return Group(table, label)


def _words(state: RunState) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if state.task is not None and state.ended is None:
        parts.append(Text(state.task, style="cyan"))
    elif state.window is not None and state.ended is None:
        verdict = diagnose(state.window)
        parts.append(Text(str(verdict), style="green" if verdict.level == "good" else "yellow"))
    for warning in state.warnings[-2:]:
        age_s = _age_s(state, warning)
        if age_s <= RECENT_WARNING_S:
            parts.append(Text(f"{duration(age_s)} ago: {warning.message}: {warning.hint}", style="yellow"))
    if state.checkpoint is not None:
        parts.append(Text(f"checkpoint at {state.checkpoint.stage} step {state.checkpoint.step:,}", style="dim"))
    if words := skipped_words(state):
        parts.append(Text(words, style="dim"))
    if state.silent_s is not None:
        parts.append(Text(_silence(state.silent_s), style="yellow"))
    if state.ended is not None:
        parts.append(Text(_ending(state.ended), style=_border(state)))
    return parts


def _age_s(state: RunState, warning: TimedWarning) -> float:
    return (state.last_at or 0.0) - warning.time


def _silence(silent_s: float) -> str:
    return f"nothing new for {duration(silent_s)}: the run may have been stopped or killed"


def _headline(state: RunState) -> str:
    words = [f"{state.stage or 'starting'} {state.step:,}/{_count(state.total_steps)}"]
    words.append(f"loss {number(state.smooth_loss)}")
    words.append(f"{number(state.steps_per_s, 3)} steps/s")
    window = state.window
    if window is not None:
        if window.audio_seconds_per_s is not None:
            words.append(f"{window.audio_seconds_per_s:.1f} audio-s/s")
        words += [f"{device} {percent(share)}" for device, share in window.device_busy.items()]
        words.append(f"buffer {window.buffer_depth:.0f}/{window.buffer_capacity}")
        words.append(f"stall {percent(window.stall_share)}")
    if state.ended is None:
        words.append(f"stage eta {duration(state.eta_s)}")
    return "  ".join(words)


def _bar(share: float, colour: str, width: int) -> list[RenderableType]:
    """The cell of a bar; none where it has no width."""
    if not width:
        return []
    completed = min(max(share, 0.0), 1.0)
    return [ProgressBar(total=1.0, completed=completed, width=width, complete_style=colour, finished_style=colour)]


def _beside(parts: Sequence[str], room: int) -> str:
    """The parts beside each other as far as there is room: no line ends within one."""
    lines = [parts[0]]
    for part in parts[1:]:
        beside = f"{lines[-1]}   {part}"
        lines[-1:] = [beside] if len(beside) <= room else [lines[-1], part]
    return "\n".join(lines)


def _memory_words(memory: MemoryReading) -> str:
    if memory.current_mb is None:
        return "unavailable"
    words = f"{memory.current_mb / 1024:.1f} GB"
    if memory.limit_mb is not None:
        words += f" of {memory.limit_mb / 1024:.1f}"
    if memory.source == PROCESS_MEMORY:
        words += f" ({PROCESS_MEMORY})"
    return words


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
