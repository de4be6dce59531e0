"""`myxtts monitor RUN`: shows a running or finished run in another terminal.

Reads `events.jsonl` only, never the run itself, and imports no TensorFlow.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.errors import DataError
from myxtts.files import writing

if TYPE_CHECKING:
    from myxtts.monitoring.events import EventFollower

POLL_S = 0.5
_MOST_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class MonitorArgs:
    """Show a run of another terminal while it trains, or a finished one.

    Examples:
      myxtts monitor runs/mine
      myxtts monitor runs/mine --once   (one look, also into a pipe)
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run: what --run-dir named."""

    once: bool = False
    """Print what is known now and exit."""

    report: bool = False
    """Write report.html into the run's folder and exit."""


OPTIONS = MonitorArgs


def main(argv: list[str]) -> int:
    args = parse_options(MonitorArgs, argv, command="monitor")
    log = args.run / "events.jsonl"
    try:
        log.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{args.run} is not the folder of a run: it has no events.jsonl",
            hint=f"give the folder that --run-dir named; it appears when training starts{_runs_near(args.run)}",
        ) from None
    except OSError as error:
        raise DataError(f"{log} cannot be read: {error.strerror}", hint="check the path and its rights") from error
    from myxtts.monitoring.console import print_snapshot
    from myxtts.monitoring.events import EventFollower
    from myxtts.monitoring.report import write_report
    from myxtts.monitoring.run_state import read_state

    if args.report:
        with writing(args.run / "report.html"):
            report = write_report(args.run)
        print(report)
        return 0
    if args.once:
        state = read_state(log)
        state.looked_at = time.time()
        print_snapshot(state, stream=sys.stdout)
        return 0
    return _follow(EventFollower(log))


def _runs_near(given: Path) -> str:
    """The runs in and beside what was named, the newest first."""
    logs = {log for place in (given, given.parent, given.parent / "runs") for log in place.glob("*/events.jsonl")}
    newest = sorted(logs, key=lambda log: log.stat().st_mtime, reverse=True)[:_MOST_LISTED]
    return f"; there are: {', '.join(str(log.parent) for log in newest)}" if newest else ""


def _follow(follower: EventFollower) -> int:
    """Show events as they are written, until the run ends or Ctrl-C; earlier events only update the state."""
    from myxtts.monitoring.console import LiveConsole, print_snapshot

    console = LiveConsole(stream=sys.stdout)
    for event in follower.poll():
        console.state.apply(event)
    try:
        with console:
            while console.state.ended is None:
                for event in follower.poll():
                    console.on_event(event)
                console.state.skipped = follower.skipped
                console.state.looked_at = time.time()
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        return 0
    print_snapshot(console.state, stream=sys.stdout)
    return 0
