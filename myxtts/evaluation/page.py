"""The evaluation as a table of text and as one HTML page with the sounds in it. Pure but for writing the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from itertools import compress
from pathlib import Path

from myxtts.evaluation.evaluate import SPEECH, SYSTEMS, Row, Summary
from myxtts.evaluation.metrics import Metrics
from myxtts.files import replacing
from myxtts.monitoring.report import audio_player

MOST_ITEMS = 12
"""Items of each group whose sounds are in the page."""
UNKNOWN = "–"
HEADS = (
    *("", "utterances", "word errors", "letter errors", "phone errors", "similarity", "next speaker"),
    *("right speaker", "naturalness", "length", "failures"),
)


def cells(line: Summary) -> tuple[str, ...]:
    scores = {
        "word_error": _percent(line.word_error),
        "character_error": _percent(line.character_error),
        "phone_error": _percent(line.phone_error),
        "similarity": _number(line.similarity),
        "other_similarity": _number(line.other_similarity),
        "right_speaker": _percent(line.right_speaker),
        "naturalness": _number(line.naturalness),
        "length_ratio": _number(line.length_ratio),
    }
    return (
        f"{line.group}: {line.system}" if line.group else line.system,
        str(line.utterances),
        *(f"{score} ({line.evaluated[name]})" if name in line.evaluated else score for name, score in scores.items()),
        str(line.failures),
    )


def table(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """The heads and a row for each line, without the columns that no metric has scored."""
    rows = [cells(line) for line in summaries]
    scored = [any(row[column] != UNKNOWN for row in rows) for column in range(len(HEADS))]
    return [tuple(compress(row, scored)) for row in (HEADS, *rows)]


def text_table(summaries: Sequence[Summary]) -> str:
    """For the terminal: columns as wide as they must be; figures to the right."""
    rows = table(summaries)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def notes(metrics: Metrics, rows: Sequence[Row], summaries: Sequence[Summary]) -> list[str]:
    """Which metric scored what, which are missing or failed, and how to read the table."""
    named = [
        ("words and letters transcribed by", metrics.recogniser),
        ("speaker similarity by", metrics.speaker),
        ("naturalness (1 to 5) by", metrics.naturalness),
        ("phones recognised by", metrics.phones),
    ]
    who = [f"{what} {metric.name}" for what, metric in named if metric is not None]
    brackets = ["in brackets: how many utterances have the score, where not all do"]
    counted = brackets if any(line.evaluated for line in summaries) else []
    return [*who, *metrics.missing, *_metric_errors(rows), *counted]


def _metric_errors(rows: Sequence[Row]) -> list[str]:
    lines = []
    for metric in dict.fromkeys(metric for row in rows for metric in row.metric_errors):
        failed = [row for row in rows if metric in row.metric_errors]
        first = f"{failed[0].item} ({failed[0].system}): {failed[0].metric_errors[metric]}"
        lines.append(f"{metric} failed on {len(failed)} sound{'s' * (len(failed) > 1)}, first on {first}")
    return lines


def write_page(
    path: Path, title: str, rows: Sequence[Row], summaries: Sequence[Summary], lines_below: Sequence[str], sounds: Path
) -> None:
    """One page that needs nothing else; sounds of the first items are in it, all lie in their folder."""
    style = resources.files("myxtts.monitoring").joinpath("report.css").read_text(encoding="utf-8")
    head, *lines = table(summaries)
    figures = _line(head, "th") + "".join(_line(line, "td") for line in lines)
    notes_below = "".join(f'<p class="soft">{escape(note)}</p>' for note in lines_below)
    groups = dict.fromkeys(row.group for row in rows)
    sections = "".join(_group(group, [row for row in rows if row.group == group], sounds) for group in groups)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main><h1>{escape(title)}</h1>"
        f'<div class="card"><table>{figures}</table></div>{notes_below}{sections}'
        "</main></body></html>\n"
    )
    with replacing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")


def _group(group: str, rows: Sequence[Row], sounds: Path) -> str:
    items = list(dict.fromkeys(row.item for row in rows))
    cards = "".join(_item([row for row in rows if row.item == item], sounds) for item in items[:MOST_ITEMS])
    left = len(items) - MOST_ITEMS
    more = f'<p class="soft">{left} more in {escape(str(sounds.name))}/ and evaluation.json.</p>' if left > 0 else ""
    return f"<h2>{escape(group) if group else 'Sounds'}</h2>{cards}{more}"


def _line(line: Sequence[str], tag: str) -> str:
    first, *rest = line
    figures = "".join(f'<{tag} class="n">{escape(cell)}</{tag}>' for cell in rest)
    return f"<tr><{tag}>{escape(first)}</{tag}>{figures}</tr>"


def _item(rows: Sequence[Row], sounds: Path) -> str:
    ordered = sorted(rows, key=lambda row: SYSTEMS.index(row.system))
    text = f'<p dir="auto"><b>{escape(rows[0].text)}</b> <span class="soft">{escape(rows[0].speaker)}</span></p>'
    return f'<div class="card">{text}{"".join(_sound(row, sounds) for row in ordered)}</div>'


def _sound(row: Row, sounds: Path) -> str:
    player = audio_player(sounds, row.path) if row.path else '<span class="soft">no sound</span>'
    notes = [f"transcript: {row.transcript}" if row.transcript is not None else "", row.failure or ""]
    if row.similarity is not None and row.system == SPEECH:
        notes.append(f"similarity {row.similarity:.2f}")
    notes += [f"{metric} failed: {reason}" for metric, reason in row.metric_errors.items()]
    note = escape(" · ".join(one for one in notes if one))
    system = f'<span class="soft">{escape(row.system)}</span>'
    return f'<div class="sample">{system}<span dir="auto">{note}</span>{player}</div>'


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
