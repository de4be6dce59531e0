"""Settings of the whole test suite."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.chromium import CHROMIUM

# Keras would load scikit-learn (it came with librosa) for wrappers that nothing here uses.
sys.modules["sklearn"] = None  # type: ignore[assignment]

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Time belongs into bench/: a loaded machine must not fail a property.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def package_log() -> Iterator[None]:
    """Commands set up the package's log for their process; here another test comes behind, which reads it."""
    logger = logging.getLogger("myxtts")
    before = (logger.level, logger.propagate, logger.handlers[:])
    yield
    logger.level, logger.propagate, logger.handlers[:] = before
    for name, other in logging.root.manager.loggerDict.items():
        if name.startswith("myxtts.") and isinstance(other, logging.Logger):
            other.setLevel(logging.NOTSET)


LACKING = {
    marker: said
    for marker, there, said in (
        ("browser", CHROMIUM, "The page's tests were left out: there is no chromium here (.ci/run installs it)."),
        ("recogniser", find_spec("moonshine_voice"), "Nothing was listened to: moonshine is not here (extra eval)."),
    )
    if there is None
}
"""Markers of tests that cannot run here, and what the summary says of them."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for said in LACKING.values():
        terminalreporter.write_line(said)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a browser or a recogniser is left out where there is none. The rest is put into order."""
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in LACKING)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    _order(items)


def _order(items: list[pytest.Item]) -> None:
    """Every worker begins with its share of the slow tests, so that none of them is left for the end.

    xdist hands each worker a run of neighbours first; later the idle ones take over from the others.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = iter([item for item in items if not item.get_closest_marker("slow")])
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        own = slow[worker::workers]
        share = (len(items) - len(ordered)) // (workers - worker)
        ordered += own
        # The range first: a zip that ends with `others` in front has taken one of them already, and lost it.
        ordered += [item for _, item in zip(range(share - len(own)), others, strict=False)]
    items[:] = [*ordered, *others]
