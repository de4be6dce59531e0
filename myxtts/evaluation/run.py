"""An evaluation from items to files: evaluation.json, evaluation.html and the sounds beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.evaluation.evaluate import Evaluation, Item, Speaking, Summary, as_json, summarise
from myxtts.evaluation.judges import Judges
from myxtts.evaluation.page import notes, text_table, write_page
from myxtts.files import writing
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
    """Speak and judge all items and write the results into `folder`; `guards=None` judges the bare model."""
    sounds = folder / SOUNDS
    with writing(folder):
        sounds.mkdir(parents=True, exist_ok=True)
    rows = list(Evaluation(synthesizer, judges, sounds, seed=seed, guards=guards).run(items, progress))
    summaries = summarise(rows)
    target, page = folder / "evaluation.json", folder / "evaluation.html"
    content = as_json(rows, summaries, judges, about)
    with writing(folder):
        target.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        write_page(page, title, rows, summaries, judges, sounds)
    return Evaluated(target, page, text_table(summaries), notes(judges, rows, summaries), summaries)
