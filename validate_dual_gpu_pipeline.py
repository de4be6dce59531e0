"""The documented set-up check: the same as `myxtts validate`."""

import sys

from myxtts.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["validate", *sys.argv[1:]]))
