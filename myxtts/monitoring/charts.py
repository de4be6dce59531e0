"""Line charts as inline SVG: no library, no network, readable without script.

Colours are classes (`s0`, `s1`, ...) that the page's style sheet defines for light and dark. The page's
script reads `data-points` to show values under the pointer.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 34
MOST_POINTS = 600
BREAK = 12
"""A gap that is so many times as wide as others breaks a line."""
LEAST_SMOOTHED = 2
"""Points on each side that are averaged even in a short curve."""
START_SHARE = 0.02
"""How much of a curve is its beginning."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line. `kind` is its look: line, faint (raw values behind a smooth line), dots, or dashed (a limit)."""

    name: str
    points: Sequence[Point]
    colour: int
    kind: str = "line"


def line_chart(
    series: Sequence[Series], *, x_label: str, y_unit: str = "", y_range: tuple[float, float] | None = None
) -> str:
    """A chart of all series on common axes; a line is broken where nothing came for long (between two stages)."""
    drawn = [Series(one.name, thin(one.points), one.colour, one.kind) for one in series if one.points]
    if not drawn:
        return '<p class="none">nothing was recorded</p>'
    xs = [x for one in drawn for x, _ in one.points]
    low, high = y_range or _y_range([y for one in drawn for _, y in one.points])
    frame = _Frame(min(xs), max(max(xs), min(xs) + 1e-9), low, high)
    parts = [_grid(frame, x_label, y_unit)]
    parts += [_path(frame, one) for one in drawn]
    legend = "".join(
        f'<span class="key s{one.colour} {one.kind}"><i></i>{escape(one.name)}</span>'
        for one in drawn
        if one.kind != "faint"
    )
    hover = [
        {"name": one.name, "colour": one.colour, "points": [[_short(x), _short(y)] for x, y in one.points]}
        for one in drawn
        if one.kind not in ("faint", "dashed")
    ]
    data = json.dumps({"series": hover, "frame": frame.as_json(), "x": x_label, "unit": y_unit})
    return (
        f'<figure class="chart" data-points="{escape(data, quote=True)}"><div class="legend">{legend}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(", ".join(one.name for one in drawn))}">'
        f"{''.join(parts)}</svg></figure>"
    )


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most `most` points: means of equal runs of points."""
    size = -(-len(points) // most)
    if size <= 1:
        return list(points)
    runs = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def smooth(points: Sequence[Point], share: float = 0.04) -> list[Point]:
    """Mean over a window around each point, `share` of the curve wide: it does not lag as a running mean would."""
    half = max(int(len(points) * share / 2), LEAST_SMOOTHED)
    sums = [0.0, *itertools.accumulate(y for _, y in points)]
    smoothed = []
    for place, (x, _) in enumerate(points):
        # A steep start keeps its height by reaching equally far on both sides; the end is flat and takes what it has.
        first = place - min(half, place)
        last = min(place + min(half, place), len(points) - 1)
        smoothed.append((x, (sums[last + 1] - sums[first]) / (last + 1 - first)))
    return smoothed


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that divide a range into about `count` parts."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / count
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class _Frame:
    """From values to places on the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return LEFT + _share(value, self.x_low, self.x_high) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = _share(value, self.y_low, self.y_high)
        return TOP + (1 - min(max(share, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)

    def as_json(self) -> dict[str, float]:
        return {
            "xLow": self.x_low,
            "xHigh": self.x_high,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": HEIGHT - BOTTOM,
        }


def _share(value: float, low: float, high: float) -> float:
    """How far along a range a value is; half way where rounding leaves no range, as between two huge numbers."""
    return (value - low) / (high - low) if high > low else 0.5


def range_behind_start(points: Sequence[Point], shown: Sequence[Point] = ()) -> tuple[float, float] | None:
    """Of y, once a curve has begun: a loss that falls from 8 to 2 at once would leave no room for what follows.

    Points of `shown` are all within it.
    """
    if not (points or shown):
        return None
    xs = [x for x, _ in points]
    begun = min(xs) + START_SHARE * (max(xs) - min(xs)) if xs else 0.0
    return _y_range([y for x, y in points if x >= begun], [y for _, y in shown])


def _y_range(values: Sequence[float], shown: Sequence[float] = ()) -> tuple[float, float]:
    """All of `shown`, and all but the wildest half percent of the values: one spike does not flatten a curve."""
    tame = sorted(values)[: int(len(values) * 0.995) + 1]
    low, high = min([*tame, *shown]), max([*tame, *shown])
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return (max(0.0, low - margin) if low >= 0 else low - margin), high + margin


def _grid(frame: _Frame, x_label: str, y_unit: str) -> str:
    lines = []
    for value in ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(value)}{escape(y_unit)}</text>')
    for value in ticks(frame.x_low, frame.x_high, 8):
        x = frame.x(value)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_label(value)}</text>')
    lines.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x_label)}</text>')
    return "".join(lines)


def _path(frame: _Frame, series: Series) -> str:
    if series.kind == "dots":
        return "".join(
            f'<circle class="s{series.colour}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3.5"/>'
            for x, y in series.points
        )
    letters = ["M", *("M" if jump else "L" for jump in _jumps([x for x, _ in series.points]))]
    commands = [
        f"{letter}{frame.x(x):.1f} {frame.y(y):.1f}" for letter, (x, y) in zip(letters, series.points, strict=True)
    ]
    return f'<path class="s{series.colour} {series.kind}" d="{"".join(commands)}"/>'


def _jumps(xs: Sequence[float]) -> list[bool]:
    """For each gap, whether it is far wider than most and than one beside it: points of a slow stage are all far."""
    gaps = [after - before for before, after in itertools.pairwise(xs)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    beside = [
        min(gaps[max(0, place - 1) : place] + gaps[place + 1 : place + 2], default=0.0) for place in range(len(gaps))
    ]
    return [gap > BREAK * max(usual, near) for gap, near in zip(gaps, beside, strict=True)]


def _label(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:,.1f}".removesuffix(".0") + "k"
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _short(value: float) -> float:
    return float(f"{value:.6g}")
