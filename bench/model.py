"""The model against Coqui's XTTS: GPT train step, generation, conditioning and HiFi-GAN, on one thread.

    python -m bench.model [--size small] [--rounds 3] [--coqui-python /tmp/coqui-venv/bin/python] [--out FILE.json]

Both sides run in processes of their own, in turns, in one run; CPU-seconds, medians over the rounds, peak memory
of the process. Without a Python that has coqui-tts (`--coqui-python` or MYXTTS_COQUI_PYTHON) the figures of
shared/PEERS.md are quoted, and the table says so. `--big` builds XTTS v2's sizes, runs one forward pass and generates
20 codes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
QUOTED = {"train": 1.64, "generate": 223.0, "conditioning": 0.085, "hifigan": 0.71}
QUOTED_MB = {"train": 1500.0}
UNITS = {
    "train": "CPU-s per step",
    "generate": "codes per CPU-s",
    "conditioning": "CPU-s per 6 s clip",
    "hifigan": "CPU-s per audio second",
}
MORE_IS_BETTER = {"generate"}
TARGETS = {"train": 0.85, "generate": 3.0, "hifigan": 0.7}
SIZES = {"small": (6, 256, 4), "big": (30, 1024, 16)}
STEPS = {"train": 4, "generate": 4, "conditioning": 6, "hifigan": 4}


def main() -> None:
    arguments = parse()
    if arguments.big:
        print(json.dumps(child([sys.executable, "-m", "bench.ours_side", "--what", "big", "--size", "big"])))
        return
    rounds = [one_round(arguments) for _ in range(arguments.rounds)]
    result = summarise(rounds, arguments.what, quoted=arguments.coqui_python is None)
    show(result, quoted=arguments.coqui_python is None)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.model", description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--what", nargs="+", choices=list(UNITS), default=list(UNITS))
    parser.add_argument("--coqui-python", type=Path, default=os.environ.get("MYXTTS_COQUI_PYTHON"))
    parser.add_argument("--big", action="store_true", help="build, forward and 20 codes at XTTS v2's sizes")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def one_round(arguments: argparse.Namespace) -> dict[str, Any]:
    """Each measurement of both sides, one after the other, with the load that others put on the machine."""
    layers, width, heads = SIZES[arguments.size]
    made: dict[str, Any] = {"load": os.getloadavg()[0]}
    for what in arguments.what:
        common = ["--what", what, "--steps", str(STEPS[what]), "--tokens", "200"]
        made[what] = {"ours": child([sys.executable, "-m", "bench.ours_side", "--size", arguments.size, *common])}
        if arguments.coqui_python:
            sizes = ["--layers", str(layers), "--width", str(width), "--heads", str(heads)]
            script = [str(arguments.coqui_python), str(HERE / "coqui_side.py")]
            made[what]["coqui"] = child([*script, *sizes, *common])
    return made


def child(command: list[str]) -> dict[str, float]:
    """Run one side; its last line of output is JSON."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_ENABLE_ONEDNN_OPTS": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def summarise(rounds: list[dict[str, Any]], whats: list[str], *, quoted: bool) -> dict[str, Any]:
    """Medians of both sides and the ratio of ours to Coqui's; with Coqui installed, of each round's own ratio."""
    result: dict[str, Any] = {"rounds": rounds}
    for what in whats:
        ours = [one[what]["ours"]["figure"] for one in rounds]
        coqui = [QUOTED[what]] * len(rounds) if quoted else [one[what]["coqui"]["figure"] for one in rounds]
        ratios = [mine / theirs for mine, theirs in zip(ours, coqui, strict=True)]
        result[what] = {
            "ours": statistics.median(ours),
            "coqui": statistics.median(coqui),
            "ratio": statistics.median(ratios),
            "spread": (min(ratios), max(ratios)),
            "ours_mb": max(one[what]["ours"]["peak_mb"] for one in rounds),
            "coqui_mb": QUOTED_MB.get(what) if quoted else max(one[what]["coqui"]["peak_mb"] for one in rounds),
        }
    return result


def show(result: dict[str, Any], *, quoted: bool) -> None:
    print("Coqui: quoted from shared/PEERS.md, not run here" if quoted else "Coqui: run in turns with ours")
    print(f"load of the machine: {', '.join(format(one['load'], '.1f') for one in result['rounds'])}")
    print(f"{'':13} {'ours':>9} {'Coqui':>9} {'ratio':>7} {'spread':>13} {'target':>7} {'MB':>6} {'Coqui':>6}")
    for what in (name for name in UNITS if name in result):
        row = result[what]
        target = TARGETS.get(what)
        limit = "" if target is None else f"{'>=' if what in MORE_IS_BETTER else '<='}{target}"
        theirs_mb = "" if row["coqui_mb"] is None else f"{row['coqui_mb']:.0f}"
        low, high = row["spread"]
        print(
            f"{what:13} {row['ours']:9.3f} {row['coqui']:9.3f} {row['ratio']:7.2f} {f'{low:.2f}-{high:.2f}':>13} "
            f"{limit:>7} {row['ours_mb']:6.0f} {theirs_mb:>6}  {UNITS[what]}"
        )


if __name__ == "__main__":
    main()
