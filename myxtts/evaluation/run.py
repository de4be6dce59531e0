"""An evaluation from items to files: evaluation.json, evaluation.html and the sounds beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.evaluation.evaluate import Evaluation, Item, Row, Speaking, Summary, as_json, summarise
from myxtts.evaluation.judges import Judges
from myxtts.evaluation.page import notes, text_table, write_page
from myxtts.files import replacing, writing
from myxtts.models.guards import GuardConfig

SOUNDS = "evaluation"


@dataclass(frozen=True)
class Evaluated:
    """Where everything is, and the table."""

    json: Path
    page: Path
    table: str
    notes: list[str]
    summaries: list[Summary]


def evaluate_into(
    folder: Path,
    title: str,
    synthesizer: Speaking,
    judges: Judges,
    items: Sequence[Item],
    about: dict[str, Any],
    *,
    seed: int = 0,
    guards: GuardConfig | None = GuardConfig(),  # noqa: B008 - frozen, so shared safely
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """Speak and judge all items and write the results into `folder`; `guards=None` judges the bare model.

    It may take hours: the results are written after each item, so that whatever ends it, what was judged stays.
    """
    sounds = folder / SOUNDS
    with writing(folder):
        sounds.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def after_each(done: int, total: int) -> None:
        if done < total:
            _write(folder, title, rows, judges, about, done, total)
        if progress is not None:
            progress(done, total)

    for row in Evaluation(synthesizer, judges, sounds, seed=seed, guards=guards).run(items, after_each):
        rows.append(row)  # one by one: `after_each` reads them
    return _write(folder, title, rows, judges, about, len(items), len(items))


def _write(
    folder: Path, title: str, rows: Sequence[Row], judges: Judges, about: dict[str, Any], done: int, total: int
) -> Evaluated:
    summaries = summarise(rows)
    unfinished = [f"not finished: {done} of {total} texts were judged"] if done < total else []
    said = [*unfinished, *notes(judges, rows, summaries)]
    content = as_json(rows, summaries, judges, {**about, "texts": total, "texts_judged": done})
    target, page = folder / "evaluation.json", folder / "evaluation.html"
    with writing(folder):
        with replacing(target) as part:
            part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        write_page(page, title, rows, summaries, said, folder / SOUNDS)
    return Evaluated(target, page, text_table(summaries), said, summaries)
