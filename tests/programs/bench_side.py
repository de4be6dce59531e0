"""A side of a benchmark: it says hello, says that it is ready, and answers each line."""

from __future__ import annotations

import json
import sys


def main() -> None:
    print("a library says hello")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"asked": line.strip()}), flush=True)
