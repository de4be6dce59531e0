"""What a benchmark says: rows with medians, range and targets; the machine's load; one JSON file.

A row compares ours with a peer in the same unit (its value is the median of the rounds' own ratios), or stands alone.
On a machine where others worked too, everything is printed and stored, and no conclusion is drawn; nor is one from a
peer's stored figure, which is of another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.measure import BenchError

RESULTS = Path("bench/results")
QUIET_CORES = 0.1
"""More than this taken by others, on average over the measurement, and the machine counts as loaded."""
MET, MISSED, FAILED, INCONCLUSIVE = 0, 1, 3, 75


@dataclass(frozen=True)
class Target:
    """A limit that a row's value must keep."""

    relation: Literal["<=", ">="]
    limit: float

    def met(self, value: float) -> bool:
        return value <= self.limit if self.relation == "<=" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


def at_most(limit: float) -> Target:
    return Target("<=", limit)


def at_least(limit: float) -> Target:
    return Target(">=", limit)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: ours over the rounds, and the peer's over the same rounds or its stored figure."""

    name: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    peer_name: str = ""
    stored: bool = False
    """The peer's figure was measured earlier and elsewhere: the peer is not installed here."""
    target: Target | None = None

    @property
    def values(self) -> list[float]:
        """By round: ours divided by the peer's, or ours alone."""
        if not self.peer:
            return list(self.ours)
        if self.stored:
            return [mine / self.peer[0] for mine in self.ours]
        return [mine / theirs for mine, theirs in zip(self.ours, self.peer, strict=True)]

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def range(self) -> tuple[float, float]:
        return min(self.values), max(self.values)

    @property
    def met(self) -> bool | None:
        """None where there is nothing to keep, or nothing measured here to keep it against."""
        return None if self.target is None or self.stored else self.target.met(self.value)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": statistics.median(self.ours),
            "peer": statistics.median(self.peer) if self.peer else None,
            "peer_name": self.peer_name,
            "stored": self.stored,
            "value": self.value,
            "range": self.range,
            "rounds": len(self.ours),
            "target": None if self.target is None else asdict(self.target),
            "met": self.met,
        }


@dataclass(kw_only=True)
class Report:
    """All that a benchmark found."""

    name: str
    rows: list[Row]
    others_cores: float
    quick: bool = False
    context: dict[str, Any] = field(default_factory=dict)
    """Figures beside the rows: shares, sizes, memory; lists are stored and not shown."""
    quiet_cores: float = QUIET_CORES

    @property
    def quiet(self) -> bool:
        return self.others_cores <= self.quiet_cores

    @property
    def missed(self) -> list[str]:
        return [row.name for row in self.rows if row.met is False]

    @property
    def conclusive(self) -> bool:
        """False where every target of the report is held against a stored figure."""
        return not self.open_rows or any(row.met is not None for row in self.rows)

    @property
    def open_rows(self) -> list[str]:
        return [row.name for row in self.rows if row.target is not None and row.met is None]

    @property
    def exit_code(self) -> int:
        if not self.quiet or self.quick or not self.conclusive:
            return INCONCLUSIVE
        return MISSED if self.missed else MET

    @property
    def conclusion(self) -> str:
        if not self.quiet:
            return f"No conclusion: other processes took {self.others_cores:.2f} cores. Run again on a quiet machine."
        if self.quick:
            return "No conclusion: --quick measures too little for one."
        if not any(row.target for row in self.rows):
            return "No target here."
        waiting = f"Open until the peer is installed here (bench/peers.md): {', '.join(self.open_rows)}"
        if not self.conclusive:
            return f"No conclusion. {waiting}"
        found = f"Missed: {', '.join(self.missed)}" if self.missed else "Every target met."
        return f"{found} {waiting}" if self.open_rows else found

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "rows": [row.to_json() for row in self.rows],
            "context": self.context,
            "others_cores": round(self.others_cores, 3),
            "quiet": self.quiet,
            "quick": self.quick,
            "conclusion": self.conclusion,
            "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        }


def table(made: Mapping[str, Any]) -> str:
    """Rows of a report's JSON as text."""
    lines = [f"{'':34} {'ours':>10} {'peer':>10} {'ratio':>8} {'range':>15} {'target':>9}"]
    for row in made["rows"]:
        low, high = row["range"]
        compared = row["peer"] is not None
        target = row["target"]
        lines.append(
            f"{row['name']:34} {row['ours']:10.4g} {_or_blank(row['peer'], '10.4g')} "
            f"{_or_blank(row['value'] if compared else None, '8.3f')} {f'{low:.3g}-{high:.3g}':>15} "
            f"{_target_text(target):>9} {verdict(row, made):7} {row['unit']}{_peer_text(row)}"
        )
    return "\n".join(line.rstrip() for line in lines)


def verdict(row: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """Met, missed, or open where its peer's figure is a stored one or its report draws no conclusion."""
    if row["target"] is None:
        return ""
    if made["quick"] or not made["quiet"] or row["stored"]:
        return "open"
    return "met" if row["met"] else "MISSED"


def _target_text(target: Mapping[str, Any] | None) -> str:
    return "" if target is None else f"{target['relation']} {target['limit']:g}"


def _peer_text(row: Mapping[str, Any]) -> str:
    if row["peer"] is None:
        return ""
    return f" ({row['peer_name']}, stored: not installed here)" if row["stored"] else f" ({row['peer_name']})"


def _or_blank(value: float | None, form: str) -> str:
    return " " * int(form.split(".")[0]) if value is None else format(value, form)


def parser_for(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs; no conclusion")
    parser.add_argument("--rounds", type=int, default=3, help="times that both sides are measured, in turns")
    parser.add_argument("--json", type=Path, default=RESULTS / f"{name}.json", help="where the figures are written")
    return parser


def finish(report: Report, json_path: Path) -> int:
    """Print and store the report; exit code 0 all targets met, 1 some missed, 75 no conclusion."""
    made = report.to_json()
    print(f"\n{table(made)}\n")
    for name, value in report.context.items():
        if not isinstance(value, list):
            print(f"{name}: {value}")
    print(f"others took {report.others_cores:.2f} cores meanwhile\n{report.conclusion}")
    json_path.parent.mkdir(parents=True, exist_ok=True)
    json_path.write_text(json.dumps(made, indent=1), encoding="utf-8")
    return report.exit_code


def run_main(main: Callable[[list[str]], int]) -> int:
    """A benchmark as a program: what cannot be measured is a message, not a traceback."""
    try:
        return main(sys.argv[1:])
    except BenchError as error:
        print(error, file=sys.stderr)
        return FAILED
