"""`python -m bench [NAME ...]`: every benchmark, or those named; each is a program that can also be run alone."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("data", "mel", "model", "hifigan", "pipeline")


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    codes = {}
    for name in wanted or NAMES:
        print(f"\n== {name} (python -m bench.{name})", flush=True)
        # A process each: thread counts and devices are settings of a process.
        codes[name] = subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode
    return max(codes.values())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
