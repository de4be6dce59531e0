"""Draws the console of a run at one of its steps: `python -m tools.console_picture RUN STEP OUT.svg`.

The README's picture is one of a training as `make demo` does it; the report beside it is a screenshot of the same run's
report.html by headless Chromium.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from myxtts.monitoring.console import render
from myxtts.monitoring.events import read_events
from myxtts.monitoring.run_state import RunState
from myxtts.monitoring.schema import WindowEvent

WIDTH = 100


def console_picture(run: Path, step: int) -> str:
    """The panel as it stood at the last window of the run's last stage that ended by `step`, as SVG."""
    events = list(read_events(run / "events.jsonl"))
    windows = [number for number, event in enumerate(events) if isinstance(event, WindowEvent) and event.step <= step]
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(render(RunState(events[: windows[-1] + 1]), WIDTH))
    picture = console.export_svg(title="myxtts monitor runs/demo/run")
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # fonts of the reader, none of the web


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(console_picture(Path(sys.argv[1]), int(sys.argv[2])), encoding="utf-8")
