"""`python -m bench` lists the benchmarks; `python -m bench NAME ...` runs some, `python -m bench all` every one.

Flags are passed on: `--quick` to see that they run, `--json PATH` (one benchmark only), and each one's own.
`python -m bench table [--write]` prints the table of what was measured last, or puts it into docs/performance.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from bench.measure import HERE
from bench.report import INCONCLUSIVE, MISSED

NAMES = (
    "startup",
    "data",
    "mel",
    "model",
    "train",
    "synth",
    "speak",
    "pipeline",
    "simulate",
    "cluster",
    "scale",
    "serve",
)
SPECIAL = ("gpu",)
"""Left out of `all`: they need what most machines lack."""


def main(arguments: list[str]) -> int:
    wanted = [word for word in arguments if not word.startswith("-")][:1]
    if not wanted or "-h" in arguments[:1] or "--help" in arguments[:1]:
        print(listing())
        return 0
    if wanted == ["table"]:
        from bench.table import main as table

        return table(arguments[1:])
    names, flags = split(arguments)
    unknown = [name for name in names if name not in NAMES + SPECIAL]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; python -m bench lists them", file=sys.stderr)
        return 2
    codes = {name: run(name, flags) for name in names}
    if len(codes) > 1:
        words = {0: "every target met", MISSED: "missed a target", INCONCLUSIVE: "no conclusion"}
        print("\n" + "\n".join(f"{name:10} {words.get(code, f'failed ({code})')}" for name, code in codes.items()))
    return worst(list(codes.values()))


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Names up to the first flag, and the rest; `all` stands for every name."""
    count = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    names = arguments[:count]
    return (list(NAMES) if names == ["all"] else names), arguments[count:]


def worst(codes: list[int]) -> int:
    """A failure before a miss, a miss before no conclusion."""
    failed = [code for code in codes if code not in (0, MISSED, INCONCLUSIVE)]
    if failed:
        return failed[0]
    return next((code for code in (MISSED, INCONCLUSIVE) if code in codes), 0)


def run(name: str, flags: list[str]) -> int:
    print(f"\n== {name} (python -m bench {' '.join([name, *flags])})", flush=True)
    # A process each: thread counts and devices are settings of a process.
    return subprocess.run([sys.executable, "-m", f"bench.{name}", *flags], cwd=HERE.parent, check=False).returncode


def listing() -> str:
    lines = ["usage: python -m bench NAME [--quick] [--json PATH] ..., or all, or table\n"]
    for name in NAMES + SPECIAL:
        doc = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:10} {doc.splitlines()[0]}")
    lines.append("\nPeers run beside ours where they are installed: bench/peers.md. Results: bench/results/NAME.json.")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
