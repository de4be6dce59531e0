"""What the soak calls growth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak import Reading, growth, last_step, size_of_events


def test_warm_up_and_a_file_that_is_open_for_a_moment_are_no_growth() -> None:
    readings = [Reading(step, min(300.0, step), 8 + (step == 700), 20) for step in range(1, 2001)]

    assert growth(readings) == (pytest.approx(0.0, abs=1e-6), 0, 0)


def test_memory_files_and_threads_that_grow_are_found() -> None:
    readings = [Reading(step, 300 + 0.002 * step, 8 + step // 500, 20 + step // 900) for step in range(1, 2001)]

    assert growth(readings) == (pytest.approx(2.0), 2, 1)


def test_steps_of_the_stage_before_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text(json.dumps({"event": "step", "stage": "codec", "step": 20_000}) + "\n")
    since = size_of_events(tmp_path)
    assert last_step(tmp_path, since) == 0

    with log.open("a") as file:
        file.write(json.dumps({"event": "step", "stage": "gpt", "step": 3}) + "\n")

    assert last_step(tmp_path, since) == 3
