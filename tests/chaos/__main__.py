"""`python -m tests.chaos --kills N --minutes M --seed S`; `--trial T` plays one trial again.

The summary, in `--out`, is written after every trial; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.trials import Chaos


def _say(failure: dict[str, Any]) -> None:
    faults = ", ".join(failure["faults"])
    print(f"BROKEN {failure['mode']} {failure['stage']} after {faults}: {failure['what']}", flush=True)
    print(f"  again: {failure['again']}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="faults that came, those of earlier calls included")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, help="this one only")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "myxtts-chaos.json")
    options = parser.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="myxtts-chaos-"))
    chaos = Chaos(folder, options.seed)
    chaos.on_failure = _say
    try:
        if options.trial is not None:
            chaos.trial(options.trial)
            return bool(chaos.failures)
        if options.out.is_file():
            chaos.go_on_from(json.loads(options.out.read_text(encoding="utf-8")))
        print(f"seed {options.seed}, from trial {chaos.trials} on; summary: {options.out}", flush=True)
        while sum(chaos.faults.values()) < options.kills and time.monotonic() - began < 60 * options.minutes:
            chaos.trial(chaos.trials)
            options.out.write_text(json.dumps(chaos.summary(), indent=1), encoding="utf-8")
    finally:
        chaos.arena.close()
        shutil.rmtree(folder, ignore_errors=True)
    summary = chaos.summary()
    counted = f"{summary['faults']} faults and {summary['missed']} that did not come"
    print(f"{summary['trials']} runs, {counted}, {len(summary['failures'])} failures")
    return bool(chaos.failures)


if __name__ == "__main__":
    sys.exit(main())
