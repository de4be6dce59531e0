"""`report.html`: a run on one page that needs nothing else, neither network nor server.

Made from `events.jsonl` and the run's samples at any time, also of a run that still goes on or was killed.
Everything that comes from the run is escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html import escape
from importlib import resources
from pathlib import Path

from myxtts.errors import DataError
from myxtts.files import replacing
from myxtts.monitoring.charts import Point, Series, line_chart, range_behind_start, smooth
from myxtts.monitoring.figures import WindowFigures, average
from myxtts.monitoring.run_state import RunState, StageHistory, read_state, skipped_words
from myxtts.monitoring.schema import MemoryReading, SampleEvent
from myxtts.monitoring.verdict import diagnose_stage
from myxtts.monitoring.words import number, percent

MOST_SAMPLES = 12
MOST_SAMPLE_BYTES = 3_000_000
AUDIO_TYPES = {".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".mp3": "audio/mpeg"}


def write_report(run_dir: Path) -> Path:
    """Writes `report.html` beside `events.jsonl`, whole or not at all."""
    log = run_dir / "events.jsonl"
    if not log.is_file():
        raise DataError(f"{run_dir} has no events.jsonl", hint="give the folder that --run-dir named")
    page = render_report(read_state(log), run_dir)
    target = run_dir / "report.html"
    with replacing(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def render_report(state: RunState, run_dir: Path) -> str:
    """The page's text."""
    style = resources.files("myxtts.monitoring").joinpath("report.css").read_text(encoding="utf-8")
    script = resources.files("myxtts.monitoring").joinpath("report.js").read_text(encoding="utf-8")
    title = f"MyXTTS: {run_dir.resolve().name}"
    sections = [
        _head(state, title),
        _numbers(state),
        _verdicts(state),
        _warnings_section(state),
        *(_loss_section(stage, history) for stage, history in state.history.items()),
        _devices_section(state),
        _memory_section(state),
        _samples_section(state, run_dir),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{''.join(sections)}</main><script>{script}</script></body></html>\n"
    )


def _head(state: RunState, title: str) -> str:
    reason = state.ended.reason if state.ended is not None else "no end recorded"
    level = {"finished": "good", "failed": "failed"}.get(reason, "warning")
    parts = [f'<h1>{escape(title)} <span class="state {level}">{escape(reason)}</span></h1>']
    if state.ended is not None:
        parts.append(f"<p>{escape(state.ended.message)}</p>")
    if state.about.command:
        parts.append(f'<p class="soft"><code>{_unbroken_flags(state.about.command)}</code></p>')
    if words := skipped_words(state):
        parts.append(f'<p class="soft">{escape(words)}</p>')
    lines = [escape(line) for line in state.devices.lines]
    if lines:
        rest = "".join(f"<p>{line}</p>" for line in lines[1:])
        parts.append(f'<details class="soft"><summary>{lines[0]}</summary>{rest}</details>')
    return "".join(parts)


def _unbroken_flags(text: str) -> str:
    """The text, which no line break parts within a flag: browsers break after a hyphen."""
    return re.sub(r"(?<![\w-])(--?[a-z][a-z-]*)", r'<span class="flag">\1</span>', escape(text))


def _numbers(state: RunState) -> str:
    # Of the stage that runs: a codec's steps are several times shorter than a gpt's, and their mean is neither's.
    windows = [figures for _, stage, figures in state.windows if stage == state.stage]
    window = average(windows) if windows else None
    hours = state.elapsed_s / 3600
    numbers = []
    if state.stage is not None:
        total = f" / {state.total_steps:,}" if state.total_steps else ""
        numbers += [
            (f"{state.step:,}{total}", f"step, stage {state.stage}"),
            (number(state.smooth_loss), "loss, smoothed"),
        ]
    numbers.append((f"{hours:.1f} h" if hours >= 1 else f"{state.elapsed_s / 60:.1f} min", "elapsed"))
    if window is not None:
        numbers += [
            (number(1000 / window.step_ms if window.step_ms else None), "batches/s"),
            (number(window.audio_seconds_per_s), "audio-seconds/s"),
            (percent(window.model_busy), "model device busy"),
            (percent(window.stall_share), "stalled for data"),
            (percent(window.efficiency), "pipeline efficiency"),
        ]
    cards = "".join(
        f'<div class="card"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in numbers
    )
    return f'<h2>In short</h2><div class="numbers">{cards}</div>'


def _verdicts(state: RunState) -> str:
    cards, rows = [], []
    for stage in state.history:
        windows = [figures for _, name, figures in state.windows if name == stage]
        if not windows:
            continue
        mean = average(windows)
        cards += [
            f'<div class="card verdict {verdict.level}">'
            f"<p><b>{escape(stage)}:</b> {_unbroken_flags(str(verdict))}.</p></div>"
            for verdict in diagnose_stage(windows)
        ]
        rows.append(_phase_row(stage, mean))
    if not cards:
        return ""
    heads = "".join(f'<th class="n">{head}</th>' for head in _COLUMNS)
    return (
        f"<h2>Verdict</h2>{''.join(cards)}"
        f'<div class="card"><table><tr><th>stage, ms a batch</th>{heads}</tr>{"".join(rows)}</table></div>'
    )


_COLUMNS: dict[str, Callable[[WindowFigures], str]] = {
    "step": lambda figures: number(figures.step_ms),
    "read": lambda figures: number(figures.phase("source").ms_per_batch),
    "process": lambda figures: number(figures.phase("process").ms_per_batch),
    "transfer": lambda figures: number(figures.phase("transfer").ms_per_batch),
    "train": lambda figures: number(figures.phase("train").ms_per_batch),
    "efficiency": lambda figures: percent(figures.efficiency),
    "swing": lambda figures: percent(figures.oscillation),
    "padding": lambda figures: percent(figures.padding_share),
    "buffer": lambda figures: f"{figures.buffer_depth:.0f}/{figures.buffer_capacity}",
}


def _phase_row(stage: str, figures: WindowFigures) -> str:
    cells = [cell(figures) for cell in _COLUMNS.values()]
    return f"<tr><td>{escape(stage)}</td>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells) + "</tr>"


def _loss_section(stage: str, history: StageHistory) -> str:
    points = history.points
    raw: list[Point] = [(float(point.step), point.loss) for point in points if point.loss is not None]
    held_out = [(float(step), loss) for step, loss in history.validations if loss is not None]
    skipped = sum(point.unknown for point in points)
    chart = line_chart(
        [
            Series("loss", raw, 0, "faint"),
            Series("loss, smoothed", smooth(raw), 0),
            Series("held out", held_out, 2, "dots"),
        ],
        x_label="step",
        y_range=range_behind_start(raw, held_out),
    )
    note = f'<p class="warning">{skipped} steps had a loss that is not a number.</p>' if skipped else ""
    return f'<h2>Loss, stage {escape(stage)}</h2><div class="card">{chart}{note}</div>'


def _devices_section(state: RunState) -> str:
    windows = state.windows
    if not windows:
        return ""
    names = list(dict.fromkeys(device for _, _, figures in windows for device in figures.device_busy))
    series = [
        Series(
            f"{_roles(windows[-1][2], device)} busy",
            [
                (at / 60, 100 * figures.device_busy[device])
                for at, _, figures in windows
                if device in figures.device_busy
            ],
            place % 4,
        )
        for place, device in enumerate(names)
    ]
    stalls = [(at / 60, 100 * figures.stall_share) for at, _, figures in windows]
    series.append(Series("waiting for data", stalls, 2 if len(names) < 3 else 3))
    chart = line_chart(series, x_label="minutes", y_unit=" %", y_range=(0.0, 100.0))
    return f'<h2>Devices over time</h2><div class="card">{chart}</div>'


def _roles(figures: WindowFigures, device: str) -> str:
    return f"{' and '.join(figures.roles_of(device))} device {device}".strip()


def _memory_section(state: RunState) -> str:
    memories = state.memories
    names = list(dict.fromkeys(device for _, devices in memories for device in devices))
    series: list[Series] = []
    notes: list[str] = []
    for place, device in enumerate(names):
        readings = [(at / 60, devices[device]) for at, devices in memories if device in devices]
        points = [(at, reading.current_mb / 1024) for at, reading in readings if reading.current_mb is not None]
        last = readings[-1][1]
        if not points:
            notes.append(f'<p class="soft">{escape(last.device or device)}: memory is unavailable.</p>')
            continue
        name = _memory_name(device, last)
        if any(one.name == name for one in series):
            continue  # two devices without memory of their own: the process has only one
        series.append(Series(name, points, place % 4))
        if last.limit_mb is not None:
            ends = [(at, last.limit_mb / 1024) for at in (points[0][0], points[-1][0])]
            series.append(Series(f"limit of {name}", ends, place % 4, "dashed"))
    if not names:
        return ""
    most_gb = max((y for one in series for _, y in one.points), default=1.0)
    chart = line_chart(series, x_label="minutes", y_unit=" GB", y_range=(0.0, 1.05 * most_gb)) if series else ""
    return f'<h2>Memory</h2><div class="card">{chart}{"".join(notes)}</div>'


def _memory_name(role: str, reading: MemoryReading) -> str:
    device, source = reading.device or role, reading.source
    return source if source == "process RSS" else f"{device} ({source})" if source else device


def _samples_section(state: RunState, run_dir: Path) -> str:
    if not state.samples:
        return ""
    rows = "".join(_sample(sample, run_dir) for sample in reversed(state.samples[-MOST_SAMPLES:]))
    left = len(state.samples) - MOST_SAMPLES
    more = f'<p class="soft">{left} earlier ones are in the samples folder.</p>' if left > 0 else ""
    return f'<h2>Samples</h2><div class="card">{rows}{more}</div>'


def _sample(sample: SampleEvent, run_dir: Path) -> str:
    where = f"{sample.stage} step {sample.step:,}"
    player = audio_player(run_dir, sample.path)
    text = escape(sample.text or "")
    return f'<div class="sample"><span class="soft">{escape(where)}</span><span dir="auto">{text}</span>{player}</div>'


def audio_player(run_dir: Path, name: str) -> str:
    """The audio inside the page; files outside the run folder are never read."""
    try:
        path = (run_dir / name).resolve()
        kind = AUDIO_TYPES.get(path.suffix.lower())
        if kind is None or not path.is_relative_to(run_dir.resolve()) or not path.is_file():
            return f'<span class="soft">{escape(name)} is not there</span>'
        if path.stat().st_size > MOST_SAMPLE_BYTES:
            return f'<span class="soft">{escape(name)} (too long to put here)</span>'
        data = base64.b64encode(path.read_bytes()).decode()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = str(getattr(error, "strerror", error))
        return f'<span class="soft">{escape(name)} cannot be read: {escape(reason)}</span>'
    return f'<audio controls preload="metadata" src="data:{kind};base64,{data}"></audio>'


def _warnings_section(state: RunState) -> str:
    if not state.warnings:
        return ""
    rows = "".join(
        f'<tr><td class="n">{warning.elapsed_s / 60:.1f} min</td><td>{escape(warning.message)}<br>'
        f'<span class="soft">{escape(warning.hint)}</span></td></tr>'
        for warning in state.warnings[-50:]
    )
    return f'<h2>Warnings</h2><div class="card"><table>{rows}</table></div>'
