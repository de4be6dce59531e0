"""`python -m myxtts` is the `myxtts` command."""

from myxtts.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
