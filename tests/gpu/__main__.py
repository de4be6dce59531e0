"""`python -m tests.gpu --report FILE`: the list of what only real GPUs can show, and a report of it to send back.

It takes some minutes and begins no test after ten. Nothing is sent anywhere: read the report, then send it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from myxtts.runtime.inventory import find_inventory

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
LONGEST_OUTPUT = 4000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"), help="where the report goes")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="seconds after which no test begins")
    options = parser.parse_args(argv)
    if not find_inventory().gpus:
        print("error: no NVIDIA GPU was found\n  hint: myxtts doctor says why; without GPUs, make test shows the rest")
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        code, printed = run_list(results, options.limit, "tests/gpu")
        rows = read_results(results)
    minutes = (time.monotonic() - began) / 60
    options.report.write_text(report(rows, doctor(), minutes, code, printed), encoding="utf-8")
    print(f"{summary(rows)} in {minutes:.1f} minutes; the report is {options.report}")
    return 1 if code else 0


def run_list(results: Path, limit_s: int, tests: str) -> tuple[int, str]:
    """Exit code of the tests and the end of what they printed."""
    limits = [f"--session-timeout={limit_s}", f"--junitxml={results}"]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", tests, "-v", *limits]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return ran.returncode, ran.stdout[-LONGEST_OUTPUT:]


def read_results(path: Path) -> list[tuple[str, str, float, str]]:
    """Name, outcome, seconds and what was measured or went wrong, of each test."""
    if not path.exists():
        return []
    rows = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        told = {kind: case.find(kind) for kind in ("failure", "error", "skipped")}
        outcome, element = next(((kind, found) for kind, found in told.items() if found is not None), ("passed", None))
        figures = [f"{one.get('name')} {one.get('value')}" for one in case.iter("property")]
        words = (element.get("message") or "").strip() if element is not None else ", ".join(figures)
        rows.append((str(case.get("name")), outcome, float(case.get("time") or 0.0), words))
    return rows


def doctor() -> str:
    command = [sys.executable, "-m", "myxtts", "doctor"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def summary(rows: list[tuple[str, str, float, str]]) -> str:
    counts = {kind: sum(outcome == kind for _, outcome, _, _ in rows) for kind in ("passed", "failure", "skipped")}
    failed = counts["failure"] + sum(outcome == "error" for _, outcome, _, _ in rows)
    return f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped"


def report(rows: list[tuple[str, str, float, str]], described: str, minutes: float, code: int, printed: str) -> str:
    lines = [
        "# MyXTTS on GPUs",
        "",
        f"{summary(rows)} in {minutes:.1f} minutes",
        "",
        "| test | outcome | seconds | what was seen |",
        "|---|---|---|---|",
        *(f"| {name} | {outcome} | {seconds:.0f} | {_cell(words)} |" for name, outcome, seconds, words in rows),
        *("", "## Machine", "", "```", described.strip(), "```"),
    ]
    if code:
        lines += ["", "## End of the output", "", "```", printed.strip(), "```"]
    return "\n".join(lines) + "\n"


def _cell(words: str) -> str:
    """The first line, in a table's cell."""
    return (words.splitlines() or [""])[0][:300].replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
