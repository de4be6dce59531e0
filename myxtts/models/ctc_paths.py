"""Decoding of a CTC network's posteriors: greedy labels, forced alignment, label error rate.

Pure numpy. The blank is the last label. Sizes in names: B batch, F frames, K labels, S states of a path (a blank
before, between and behind the labels).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_IMPOSSIBLE = -1e30


def greedy_labels(logits_FK: NDArray[np.float32]) -> list[int]:
    """The most likely label of each frame, repeats merged and blanks dropped."""
    best_F = logits_FK.argmax(-1)
    changed_F = np.concatenate([[True], best_F[1:] != best_F[:-1]]) if len(best_F) else np.zeros(0, bool)
    return [int(label) for label in best_F[changed_F] if label != logits_FK.shape[1] - 1]


def forced_paths(
    logits_BFK: NDArray[np.float32], steps_B: NDArray[np.integer], labels: Sequence[NDArray[np.integer]]
) -> list[NDArray[np.int64]]:
    """For every clip and frame the position of its label in the text, -1 in a blank: the likeliest CTC path.

    A clip that has more labels than frames has no path; its labels are placed evenly.
    """
    blank = logits_BFK.shape[2] - 1
    longest = max(1, *(len(row) for row in labels))
    states_BS = np.full((len(labels), 2 * longest + 1), blank)
    for row, own in enumerate(labels):
        states_BS[row, 1 : 2 * len(own) : 2] = own
    logp_BFK = logits_BFK - _log_sum_exp(logits_BFK)
    score_BFS = np.take_along_axis(logp_BFK, states_BS[:, None], 2)
    skips_BS = np.zeros(states_BS.shape, bool)
    skips_BS[:, 3::2] = states_BS[:, 3::2] != states_BS[:, 1:-2:2]
    back_FBS, best_FBS = _viterbi(score_BFS, skips_BS)
    return [
        _walk_back(back_FBS[:steps, row], best_FBS[steps - 1, row], len(own))
        for row, (steps, own) in enumerate(zip(map(int, steps_B), labels, strict=True))
    ]


def _viterbi(score_BFS: NDArray[Any], skips_BS: NDArray[np.bool_]) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """How many states each state was reached from further back, and the best score up to it, for every frame."""
    batch, frames, states = score_BFS.shape
    back_FBS = np.zeros((frames, batch, states), np.int8)
    best_FBS = np.full((frames, batch, states), _IMPOSSIBLE)
    best_FBS[0, :, :2] = score_BFS[:, 0, :2]
    arrivals_3BS = np.full((3, batch, states), _IMPOSSIBLE)
    for frame in range(1, frames):
        before_BS = best_FBS[frame - 1]
        arrivals_3BS[0] = before_BS
        arrivals_3BS[1, :, 1:] = before_BS[:, :-1]
        arrivals_3BS[2, :, 2:] = np.where(skips_BS[:, 2:], before_BS[:, :-2], _IMPOSSIBLE)
        back_FBS[frame] = arrivals_3BS.argmax(0)
        best_FBS[frame] = arrivals_3BS.max(0) + score_BFS[:, frame]
    return back_FBS, best_FBS


def _walk_back(back_FS: NDArray[np.int8], last_S: NDArray[Any], labels: int) -> NDArray[np.int64]:
    frames = len(back_FS)
    path_F = np.full(frames, -1, np.int64)
    if labels == 0:
        return path_F
    state = 2 * labels if last_S[2 * labels] > last_S[2 * labels - 1] else 2 * labels - 1
    if last_S[state] < _IMPOSSIBLE / 2:
        return np.arange(frames) * labels // frames
    for frame in range(frames - 1, -1, -1):
        path_F[frame] = (state - 1) // 2 if state % 2 else -1
        state -= int(back_FS[frame, state])
    return path_F


def end_scores(logp_FK: NDArray[np.float32], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """The log likelihood of the likeliest path that speaks the first 0, 1, 2 ... labels, and those alone."""
    states_S = np.full(2 * len(labels) + 1, logp_FK.shape[1] - 1)
    states_S[1::2] = labels
    skips_S = np.zeros(len(states_S), bool)
    skips_S[3::2] = states_S[3::2] != states_S[1:-2:2]
    score_FS = logp_FK[:, states_S].astype(np.float64)
    best_S = np.full(len(states_S), -np.inf)
    best_S[:2] = score_FS[0, :2]
    for score_S in score_FS[1:]:
        before_S = best_S
        best_S = before_S.copy()
        np.maximum(best_S[1:], before_S[:-1], out=best_S[1:])
        np.maximum(best_S[2:], np.where(skips_S[2:], before_S[:-2], -np.inf), out=best_S[2:])
        best_S += score_S
    return np.asarray(np.maximum(best_S[::2], np.concatenate([[-np.inf], best_S[1::2]])))


def fill_blanks(path_F: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every frame to the label that is nearest in time; of two as near, to the one that comes."""
    spoken = np.flatnonzero(path_F >= 0)
    if len(spoken) == 0:
        return np.zeros_like(path_F)
    frames = np.arange(len(path_F))
    after = np.searchsorted(spoken, frames)
    right = spoken[np.minimum(after, len(spoken) - 1)]
    left = spoken[np.maximum(after - 1, 0)]
    return path_F[np.where(np.abs(right - frames) <= np.abs(frames - left), right, left)]


def labels_of_codes(path_F: NDArray[np.int64], codes: int) -> NDArray[np.int64]:
    """For each code, which is two steps of an aligner long, the position of the label that is spoken in its middle."""
    return fill_blanks(path_F)[np.minimum(np.arange(codes) * 2 + 1, len(path_F) - 1)]


def _log_sum_exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = x.max(-1, keepdims=True)
    total: NDArray[np.float32] = peak + np.log(np.exp(x - peak).sum(-1, keepdims=True))
    return total


def error_rate(wanted: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> float:
    """Insertions, deletions and substitutions for each wanted label, over all clips."""
    edits = sum(edit_distance(w, h) for w, h in zip(wanted, found, strict=True))
    return edits / max(1, sum(len(w) for w in wanted))


def edit_distance(wanted: Sequence[Any], found: Sequence[Any]) -> int:
    """Fewest insertions, deletions and substitutions between two sequences."""
    row = list(range(len(found) + 1))
    for number, symbol in enumerate(wanted, 1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(found, 1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (symbol != other))
    return row[-1]
