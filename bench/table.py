"""The table of docs/performance.md from what was measured last: `python -m bench table [--write]`.

Reads bench/results/*.json; each row keeps the load at which it was measured. A row without a result says so.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure import HERE
from bench.report import verdict

PAGE = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- bench table -->", "<!-- end of bench table -->"
SHOWN = {
    "model": ("gpt train step", "generation", "hifigan", "conditioning", "speaker vector"),
    "train": ("training, each as shipped", "training, references of 6 s in both"),
    "synth": ("text to wave", "first sound of a stream"),
    "speak": (
        "generation, int8",
        "generation, f32",
        "text to wave with HiFi-GAN, int8",
        "HiFi-GAN alone, int8",
        "text to wave with a mel decoder, int8",
        "first sound of a stream, mel decoder, int8",
        "myxtts synth, whole process, int8",
        "text to wave with HiFi-GAN, most memory, int8",
        "text to wave with a mel decoder, most memory, int8",
        "16 texts at once, to waves, against one at a time, int8",
    ),
    "serve": ("batched at 16 streams", "first byte of accepted at ten times the capacity, 95 of 100"),
    "cluster": ("two model workers", "two model workers, off by"),
    "mel": ("mel",),
    "data": ("reading, theirs with a mel", "reading, both without a mel"),
    "startup": ("import myxtts", *(f"myxtts {name} --help" for name in ("train", "prepare", "synth", "monitor"))),
    "pipeline": (
        "efficiency of side by side",
        "efficiency of alone",
        "speed-up over sequential",
        "simulated 1+1, computing, off by",
    ),
    "scale": ("step, 1,000,000 clips",),
    "simulate": ("1+1, model the slower, off by", "1+2, model the slower, off by", "2+1, model the slower, off by"),
}
"""The rows of the page, by benchmark."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench table", description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    arguments = parser.parse_args(argv)
    made = markdown(read_results(arguments.results))
    if not arguments.write:
        print(made)
        return 0
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(f"{PAGE} has the figures of {arguments.results}")
    return 0


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: result for name, result in found.items() if name in SHOWN}


def markdown(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| what | ours | peer | value | range | target | | others' cores | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, wanted in SHOWN.items():
        rows = {row["name"]: row for row in results.get(name, {}).get("rows", [])}
        for what in wanted:
            command = f"`python -m bench {name}`"
            if what not in rows:
                lines.append(f"| {what} | not measured | | | | | | | {command} |")
                continue
            lines.append(line_of(rows[what], results[name], command))
    return "\n".join(lines)


def line_of(row: Mapping[str, Any], result: Mapping[str, Any], command: str) -> str:
    peer = "" if row["peer"] is None else f"{row['peer']:.3g} ({row['peer_name']}{', stored' * row['stored']})"
    value = f"{row['value']:.3g}" + ("×" if row["peer"] is not None else "")
    low, high = row["range"]
    target = "" if row["target"] is None else f"{row['target']['relation']} {row['target']['limit']:g}"
    load = f"{result['others_cores']:.2f}" + ("" if result["quiet"] else " (loaded)") + " quick" * result["quick"]
    cells = [
        row["name"],
        f"{row['ours']:.3g} {row['unit']}",
        peer,
        value,
        f"{low:.3g} to {high:.3g}",
        target,
        verdict(row, result),
        load,
        command,
    ]
    return "| " + " | ".join(cells) + " |"


def replaced(page: str, made: str) -> str:
    """The page with the table between its two marks replaced."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"docs/performance.md must have {BEGIN} and {END} once each")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}"
