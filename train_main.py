"""The documented way to train: the same as `myxtts train`."""

import sys

from myxtts.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["train", *sys.argv[1:]]))
