"""The end report of `prepare`: what a corpus holds, in numbers, and the same as lines for a person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.data.corpora import CorpusListing, Refusal

_NOTICES_KEPT = 1000


def build_report(
    listing: CorpusListing,
    wave_samples: NDArray[np.integer],
    text_tokens: NDArray[np.integer],
    speakers: Sequence[str],
    languages: Sequence[str],
    refusals: Sequence[Refusal],
    unknown: Counter[str],
) -> dict[str, Any]:
    """All numbers of a prepared corpus; `speakers` and `languages` are one name a clip."""
    seconds = np.asarray(wave_samples) / SAMPLE_RATE
    total = len(seconds) + len(refusals)
    return {
        "corpus": str(listing.root),
        "format": listing.format,
        "clips": len(seconds),
        "hours": round(float(seconds.sum()) / 3600, 4),
        "seconds_min_mean_max": [round(float(value), 2) for value in _min_mean_max(seconds)],
        "tokens_min_mean_max": [round(float(value), 2) for value in _min_mean_max(np.asarray(text_tokens))],
        "speakers": dict(Counter(speakers).most_common()),
        "languages": dict(Counter(languages).most_common()),
        "length_histogram_seconds": {
            str(second): int(count) for second, count in enumerate(np.bincount(seconds.astype(np.int64))) if count
        },
        "characters_not_in_vocabulary": dict(unknown.most_common()),
        "refused": len(refusals),
        "refused_share": round(len(refusals) / max(1, total), 4),
        "refused_by_reason": dict(Counter(_kind(refusal.reason) for refusal in refusals).most_common()),
        "notices": [f"{notice.file}:{notice.line}: {notice.what}" for notice in listing.notices[:_NOTICES_KEPT]],
        "notices_total": len(listing.notices),
    }


def report_lines(report: dict[str, Any], refused_path: str) -> list[str]:
    """The report as a person reads it at the end of the command."""
    low, mean, high = report["seconds_min_mean_max"]
    lines = [
        f"kept {report['clips']} clips, {report['hours']:.2f} hours ({report['format']})",
        f"length {low:g} to {high:g} s, mean {mean:g} s",
        f"speakers ({len(report['speakers'])}): {_first(report['speakers'])}",
        f"languages: {_first(report['languages'])}",
    ]
    histogram = {int(second): count for second, count in report["length_histogram_seconds"].items()}
    most = max(histogram.values(), default=1)
    for second, count in sorted(histogram.items()):
        lines.append(f"  {second:>3}-{second + 1} s {'#' * max(1, round(40 * count / most)):<40} {count}")
    if report["characters_not_in_vocabulary"]:
        lines.append(f"not in the vocabulary: {_first(report['characters_not_in_vocabulary'], 20)}")
    if report["notices_total"]:
        lines.append(f"{report['notices_total']} notice(s), the first: {report['notices'][0]}")
    lines.append(f"refused {report['refused']} ({report['refused_share']:.1%})")
    lines.extend(f"  {count:>6} {reason}" for reason, count in list(report["refused_by_reason"].items())[:8])
    if report["refused"]:
        lines.append(f"  each with its line and reason in {refused_path}")
    return lines


def _min_mean_max(values: NDArray[Any]) -> tuple[float, float, float]:
    return (float(values.min()), float(values.mean()), float(values.max())) if len(values) else (0.0, 0.0, 0.0)


def _kind(reason: str) -> str:
    """The reason without its particulars, so that like refusals are counted together."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|U\+\w+|(?<![\w.-])\d[\d.]*%?", "…", reason.split(":")[0]).strip()


def _first(counts: dict[str, int], limit: int = 6) -> str:
    shown = ", ".join(f"{name[:24]} {count}" for name, count in list(counts.items())[:limit])
    return shown + (f" and {len(counts) - limit} more" if len(counts) > limit else "")
