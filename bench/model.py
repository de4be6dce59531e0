"""The model against Coqui's XTTS: GPT train step, generation, conditioning, speaker vector, HiFi-GAN; one thread.

Both sides run in processes of their own, in turns, in one run; CPU-seconds, medians over the rounds, peak memory of the
process. `--big` builds XTTS v2's sizes, runs one forward pass and generates 20 codes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.measure import HERE, Others, peer_python, run_side
from bench.peers import STORED
from bench.report import Report, Row, at_least, at_most, finish, parser_for, run_main

UNITS = {
    "train": "CPU-s per step",
    "generate": "codes per CPU-s",
    "conditioning": "CPU-s per 6 s clip",
    "speaker": "CPU-s per 9.7 s clip",
    "hifigan": "CPU-s per audio second",
}
NAMES = {
    "train": "gpt train step",
    "generate": "generation",
    "conditioning": "conditioning",
    "speaker": "speaker vector",
    "hifigan": "hifigan",
}
TARGETS = {"train": at_most(0.7), "generate": at_least(4.0), "hifigan": at_most(0.65)}
SIZES = {"small": (6, 256, 4), "big": (30, 1024, 16)}
STEPS = {"train": 4, "generate": 4, "conditioning": 6, "speaker": 4, "hifigan": 4}


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    if arguments.big:
        print(json.dumps(run_side([sys.executable, "-m", "bench.ours_side", "--what", "big", "--size", "big"])))
        return 0
    others = Others()
    rounds = [one_round(arguments) for _ in range(1 if arguments.quick else arguments.rounds)]
    report = Report(
        name="model",
        rows=[row_of(what, rounds, arguments.size) for what in arguments.what],
        others_cores=others.cores(),
        quick=arguments.quick,
        context={f"peak memory, {what}": memory_of(what, rounds) for what in arguments.what},
    )
    return finish(report, arguments.json)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = parser_for("model", __doc__)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--what", nargs="+", choices=list(UNITS), default=list(UNITS))
    parser.add_argument("--coqui-python", type=Path, default=peer_python(), help="by default MYXTTS_PEER_PYTHON")
    parser.add_argument("--big", action="store_true", help="build, forward and 20 codes at XTTS v2's sizes")
    return parser.parse_args(argv)


def one_round(arguments: argparse.Namespace) -> dict[str, Any]:
    """Each measurement of both sides, one after the other."""
    layers, width, heads = SIZES[arguments.size]
    made: dict[str, Any] = {}
    for what in arguments.what:
        common = ["--what", what, "--steps", str(STEPS[what]), "--tokens", "200"]
        made[what] = {"ours": run_side([sys.executable, "-m", "bench.ours_side", "--size", arguments.size, *common])}
        if arguments.coqui_python:
            sizes = ["--layers", str(layers), "--width", str(width), "--heads", str(heads)]
            script = [str(arguments.coqui_python), str(HERE / "coqui_side.py")]
            made[what]["coqui"] = run_side([*script, *sizes, *common])
    return made


def row_of(what: str, rounds: list[dict[str, Any]], size: str) -> Row:
    theirs = [one[what]["coqui"]["figure"] for one in rounds if "coqui" in one[what]]
    stored = [STORED[NAMES[what]]] if size == "small" else []
    return Row(
        name=NAMES[what],
        unit=UNITS[what],
        ours=[one[what]["ours"]["figure"] for one in rounds],
        peer=theirs or stored,
        stored=not theirs,
        peer_name="Coqui",
        target=TARGETS.get(what) if size == "small" else None,
    )


def memory_of(what: str, rounds: list[dict[str, Any]]) -> str:
    def most(side: str) -> str:
        found = [one[what][side] for one in rounds if side in one[what]]
        if not found:
            return "not measured"
        peak, imports = (max(one[name] for one in found) for name in ("peak_mb", "imports_mb"))
        return f"{peak:.0f} MB, {imports:.0f} of them imports"

    return f"ours {most('ours')}; Coqui {most('coqui')}"


if __name__ == "__main__":
    raise SystemExit(run_main(main))
