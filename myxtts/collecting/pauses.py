"""Voice activity and where to cut: decisions on the levels of a recording, frame by frame. Pure.

A frame is speech where it is clearly louder than the noise floor around it; the floor follows the recording, so that a
fan that starts in the second hour does not end the pauses. Cuts lie in pauses only: what has no pause stays in one
piece, however long, and the caller sets it aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

FRAMES_PER_S = 100
_AROUND_S = 15
"""The floor of a second is that of so many seconds before and behind it: each half minute of speech has pauses."""
_FLOOR_PERCENTILE, _SPEECH_PERCENTILE = 5, 90
LOWEST_DB = -90.0
"""Digital silence has no level; this stands for it, and the floor does not follow it down."""
_LEAST_RISE_DB, _MOST_RISE_DB, _RISE_SHARE = 6.0, 18.0, 0.35
"""Speech begins at this share of the way from the floor to loud speech: breath stays below, soft consonants do not."""
_SHORTEST_SPEECH_S = 0.05
_SHORTEST_PAUSE_S = 0.15
"""The closure of a plosive is shorter than this, and no pause."""

Span = tuple[int, int]
"""First frame and the one behind the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CutLimits:
    """Which pieces are wanted."""

    shortest_s: float = 1.0
    longest_s: float = 12.0
    pause_s: float = 0.45
    """A pause as long as this always ends a piece; shorter ones only within a piece that is too long."""
    edge_s: float = 0.2
    """Of the pauses around a piece, as much is kept on each side, up to their middle."""
    bridged_s: float = 1.0
    """Longest pause across which a piece that is too short joins its neighbour."""


def noise_floor(levels_db: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """For every frame the level of the noise and that of loud speech around it."""
    seconds = -(-len(levels_db) // FRAMES_PER_S)
    floor, loud = np.empty(seconds, np.float32), np.empty(seconds, np.float32)
    for second in range(seconds):
        around = levels_db[max(0, second - _AROUND_S) * FRAMES_PER_S : (second + _AROUND_S + 1) * FRAMES_PER_S]
        sounding = around[around > LOWEST_DB + 5]
        if len(sounding) == 0:
            floor[second] = loud[second] = LOWEST_DB
        else:
            floor[second], loud[second] = np.percentile(sounding, (_FLOOR_PERCENTILE, _SPEECH_PERCENTILE))
    frames = np.arange(len(levels_db)) // FRAMES_PER_S
    return floor[frames], loud[frames]


def speech_runs(levels_db: NDArray[np.float32]) -> list[Span]:
    """Where there is speech; runs lie at least `_SHORTEST_PAUSE_S` apart."""
    floor, loud = noise_floor(levels_db)
    rise = np.clip(_RISE_SHARE * (loud - floor), _LEAST_RISE_DB, _MOST_RISE_DB)
    speaks = np.concatenate([[False], levels_db > floor + rise, [False]])
    edges = np.flatnonzero(speaks[1:] != speaks[:-1])
    joined: list[Span] = []
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if joined and start - joined[-1][1] < _SHORTEST_PAUSE_S * FRAMES_PER_S:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return [run for run in joined if run[1] - run[0] >= _SHORTEST_SPEECH_S * FRAMES_PER_S]


def cut(runs: Sequence[Span], frames: int, limits: CutLimits) -> list[Span]:
    """Pieces of a recording of so many frames, with the ends of the pauses around them; all speech is in one."""
    groups: list[list[Span]] = []
    for run in runs:
        if groups and run[0] - groups[-1][-1][1] < limits.pause_s * FRAMES_PER_S:
            groups[-1].append(run)
        else:
            groups.append([run])
    fitting = [part for group in groups for part in _split(group, limits)]
    return _with_edges([(group[0][0], group[-1][1]) for group in _join_short(fitting, limits)], frames, limits)


def _seconds(group: Sequence[Span]) -> float:
    return (group[-1][1] - group[0][0]) / FRAMES_PER_S


def _split(group: list[Span], limits: CutLimits) -> list[list[Span]]:
    """A group that is too long, cut at its longest pause that leaves no side too short, and so on."""
    if _seconds(group) <= limits.longest_s - 2 * limits.edge_s:
        return [group]
    places = [
        place
        for place in range(1, len(group))
        if min(_seconds(group[:place]), _seconds(group[place:])) >= limits.shortest_s
    ]
    if not places:
        return [group]
    best = max(places, key=lambda place: group[place][0] - group[place - 1][1])
    return _split(group[:best], limits) + _split(group[best:], limits)


def _join_short(groups: list[list[Span]], limits: CutLimits) -> list[list[Span]]:
    """Groups that are too short, joined to the neighbour that is nearer where both fit one piece."""
    joined = list(groups)
    at = 0
    while at < len(joined):
        if _seconds(joined[at]) >= limits.shortest_s:
            at += 1
            continue
        options = []
        for left in (at - 1, at):
            if 0 <= left < len(joined) - 1:
                gap = (joined[left + 1][0][0] - joined[left][-1][1]) / FRAMES_PER_S
                length = _seconds([joined[left][0], joined[left + 1][-1]])
                if gap <= limits.bridged_s and length <= limits.longest_s - 2 * limits.edge_s:
                    options.append((gap, left))
        if not options:
            at += 1
            continue
        _, left = min(options)
        joined[left : left + 2] = [joined[left] + joined[left + 1]]
        at = left
    return joined


def _with_edges(spans: list[Span], frames: int, limits: CutLimits) -> list[Span]:
    """Spans and as much of the pauses around them as is kept, at most to the middle."""
    edge = round(limits.edge_s * FRAMES_PER_S)
    middles = [(left[1] + right[0]) // 2 for left, right in pairwise(spans)]
    starts = [0, *middles]
    ends = [*middles, frames]
    return [
        (max(first, span[0] - edge), min(last, span[1] + edge))
        for span, first, last in zip(spans, starts, ends, strict=False)
    ]
