"""`python -m tests.crash`: a line for each writer."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.crash.check import check_writer
from tests.crash.writers import WRITERS


def main(names: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    bad = 0
    for name in names or list(WRITERS):
        with tempfile.TemporaryDirectory(prefix="myxtts-crash-") as folder:
            checked = check_writer(name, Path(folder))
        print(
            f"{name}: {checked.operations} operations, {checked.syncs} of them syncs, {checked.states} states, "
            f"{len(checked.bad)} bad",
            flush=True,
        )
        for problem in checked.bad[:5]:
            print(f"  {problem}")
        bad += len(checked.bad)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
