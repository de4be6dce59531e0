"""An evaluation from items to files: evaluation.json, evaluation.html and the sounds beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.evaluation.evaluate import Evaluation, Item, Row, Speaking, Summary, as_json, summarise
from myxtts.evaluation.metrics import Metrics
from myxtts.evaluation.page import notes, text_table, write_page
from myxtts.files import replacing, writing
from myxtts.synthesis.options import SpeakingOptions

SOUNDS = "evaluation"


@dataclass(frozen=True)
class Evaluated:
    """Where the files are, and the table."""

    json: Path
    page: Path
    table: str
    notes: list[str]
    summaries: list[Summary]


def evaluate_into(
    folder: Path,
    title: str,
    synthesizer: Speaking,
    metrics: Metrics,
    items: Sequence[Item],
    about: dict[str, Any],
    options: SpeakingOptions | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """Speak and score all items and write the results into `folder`.

    `about` stands beside the scores in evaluation.json; `options` is how texts are spoken, but for reference and
    language. Where it is ended early, by Ctrl-C or by an error, what was scored until then is written.
    """
    sounds = folder / SOUNDS
    with writing(folder):
        sounds.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    try:
        for row in Evaluation(synthesizer, metrics, sounds, options).run(items, progress):
            rows.append(row)  # one by one, so that those before an error are there
    except BaseException:  # raised again: also what Ctrl-C cuts short is written
        if rows:
            _write(folder, title, rows, metrics, about, len(items))
        raise
    return _write(folder, title, rows, metrics, about, len(items))


def _write(
    folder: Path, title: str, rows: Sequence[Row], metrics: Metrics, about: dict[str, Any], total: int
) -> Evaluated:
    summaries, done = summarise(rows), len({row.item for row in rows})
    unfinished = [f"not finished: {done} of {total} texts were evaluated"] if done < total else []
    lines = [*unfinished, *notes(metrics, rows, summaries)]
    content = as_json(rows, summaries, metrics, {**about, "texts": total, "texts_evaluated": done})
    target, page = folder / "evaluation.json", folder / "evaluation.html"
    with writing(folder):
        with replacing(target) as part:
            part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        write_page(page, title, rows, summaries, lines, folder / SOUNDS)
    return Evaluated(target, page, text_table(summaries), lines, summaries)
