"""Imports the package and says what came with it: for `tests/unit/test_opening.py`."""

from __future__ import annotations

import json
import sys


def main() -> None:
    import myxtts

    heavy = {"numpy", "tensorflow", "keras", "yaml", "tyro"} & set(sys.modules)
    print(json.dumps({"heavy": sorted(heavy), "open_voices": hasattr(myxtts, "open_voices")}))
