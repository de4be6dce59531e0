"""The benchmarks' common half: ratios by round, targets, load, JSON, the list of programs and the page's table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.__main__ import NAMES, SPECIAL, listing, split, worst
from bench.measure import BenchError, Others, Side, cpu_seconds, peer_python, run_side
from bench.report import INCONCLUSIVE, MET, MISSED, Report, Row, at_least, at_most, finish, table
from bench.table import BEGIN, END, PAGE, SHOWN, markdown, read_results, replaced


def row(**changes: object) -> Row:
    given = {"name": "step", "unit": "CPU-s", "ours": [1.0, 3.0, 2.0], "peer": [2.0, 3.0, 8.0], "peer_name": "peer"}
    return Row(**{**given, **changes})  # type: ignore[arg-type]


def report(*rows: Row, others_cores: float = 0.0, quick: bool = False) -> Report:
    return Report(name="some", rows=list(rows), others_cores=others_cores, quick=quick)


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    # Medians of the sides would give 2 / 3; round by round the ratios are 0.5, 1 and 0.25.
    assert row().value == 0.5
    assert row().range == (0.25, 1.0)


def test_a_stored_figure_divides_every_round() -> None:
    stored = row(peer=[4.0], stored=True)

    assert stored.values == [0.25, 0.75, 0.5]
    assert "stored: not installed here" in table(report(stored).to_json())


def test_a_figure_of_another_machine_leaves_its_target_open() -> None:
    good, bad = row(target=at_most(0.5)), row(name="slow", target=at_least(0.6))
    stored = row(name="elsewhere", peer=[4.0], stored=True, target=at_most(0.1))

    assert "<= 0.1 open" in table(report(stored).to_json())
    assert report(good, stored).exit_code == MET
    assert report(good, stored).conclusion.startswith("Every target met. Open until the peer is installed here")
    assert report(bad, stored).missed == ["slow"]
    assert report(stored).exit_code == INCONCLUSIVE
    assert report(stored).conclusion.endswith("elsewhere")


def test_a_row_without_a_peer_is_evaluated_by_its_own_figure() -> None:
    assert row(peer=[], target=at_most(2.0)).met is True
    assert row(peer=[], target=at_least(2.5)).met is False
    assert row(peer=[]).met is None


def test_the_exit_code_says_met_missed_or_no_conclusion() -> None:
    good, bad = row(target=at_most(0.5)), row(name="slow", target=at_least(0.6))

    assert report(good).exit_code == MET
    assert report(good, bad).exit_code == MISSED
    assert report(good, bad).conclusion == "Missed: slow"
    assert report(good, others_cores=1.5).exit_code == INCONCLUSIVE
    assert "1.50 cores" in report(bad, others_cores=1.5).conclusion
    assert report(good, quick=True).exit_code == INCONCLUSIVE


def test_a_loaded_machine_still_prints_and_stores_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = finish(report(row(target=at_most(0.4)), others_cores=2.0), tmp_path / "deep" / "some.json")

    stored = json.loads((tmp_path / "deep" / "some.json").read_text())
    assert code == INCONCLUSIVE
    assert stored["quiet"] is False
    assert stored["rows"][0]["value"] == 0.5
    printed = capsys.readouterr().out
    assert "open" in printed
    assert "MISSED" not in printed


def test_a_failure_weighs_more_than_a_miss_and_a_miss_more_than_no_conclusion() -> None:
    assert worst([0, 0]) == 0
    assert worst([0, INCONCLUSIVE, MISSED]) == MISSED
    assert worst([0, INCONCLUSIVE]) == INCONCLUSIVE
    assert worst([MISSED, 3]) == 3


def test_names_end_where_flags_begin() -> None:
    assert split(["mel", "data", "--quick", "--rounds", "2"]) == (["mel", "data"], ["--quick", "--rounds", "2"])
    assert split(["all", "--quick"]) == (list(NAMES), ["--quick"])


def test_every_benchmark_is_listed_with_what_it_measures() -> None:
    lines = {line.split()[0]: line for line in listing().splitlines() if line.startswith("  ")}

    assert set(lines) == set(NAMES + SPECIAL)
    assert all(len(line.split()) > 4 for line in lines.values())


ANSWERS = [sys.executable, "-m", "tests.programs", "bench_side"]


def test_a_side_answers_turn_by_turn() -> None:
    with Side(ANSWERS) as side:
        assert side.ready == {"ready": True}
        assert side.turn("one") == {"asked": "one"}
        assert side.turn("two") == {"asked": "two"}


def test_a_side_that_dies_is_an_error_that_names_it() -> None:
    with pytest.raises(BenchError, match="exit code 7"):
        Side([sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(BenchError, match="no such number"):
        run_side([sys.executable, "-c", "raise ValueError('no such number')"])


def test_the_peer_is_found_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MYXTTS_PEER_PYTHON", raising=False)
    assert peer_python() is None
    monkeypatch.setenv("MYXTTS_PEER_PYTHON", sys.executable)
    assert peer_python() == sys.executable
    monkeypatch.setenv("MYXTTS_PEER_PYTHON", "/nowhere/python")
    with pytest.raises(BenchError, match="/nowhere/python"):
        peer_python()


def test_own_work_is_counted_as_ours_and_not_as_others() -> None:
    others = Others()
    used = cpu_seconds(lambda: sum(number * number for number in range(400_000)))

    assert used > 0
    assert others.cores() >= 0


def test_the_page_keeps_its_words_around_the_table() -> None:
    page = f"before\n{BEGIN}\n| old |\n{END}\nafter\n"

    assert replaced(page, "| new |") == f"before\n{BEGIN}\n| new |\n{END}\nafter\n"
    with pytest.raises(ValueError, match="once each"):
        replaced("no marks", "| new |")


def test_the_table_shows_the_load_and_what_was_not_measured(tmp_path: Path) -> None:
    measured = Report(name="mel", rows=[row(name="mel", target=at_least(0.4))], others_cores=0.9)
    finish(measured, tmp_path / "mel.json")

    lines = {line.split(" | ")[0].strip("| "): line for line in markdown(read_results(tmp_path)).splitlines()}

    assert "| open | 0.90 (loaded) |" in lines["mel"]
    assert "not measured" in lines["generation"]


def test_the_page_has_a_place_for_the_table_and_names_every_benchmark_in_it() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert replaced(page, "").count(BEGIN) == 1
    assert all(f"python -m bench {name}" in page for name in SHOWN)
