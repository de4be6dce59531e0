"""Ctrl-C while TensorFlow computes: Python runs its handler only once the computation returns, minutes later."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_S = 2.0
"""How long Python may take to end by itself, with `finally` and all, before the process is ended."""


@contextmanager
def ended_by_ctrl_c(exit_code: int, grace_s: float = GRACE_S) -> Iterator[None]:
    """Within, Ctrl-C ends the process after `grace_s` at the latest. Only for work that has nothing to save."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    left = threading.Event()
    watcher = threading.Thread(target=_watch, args=(reader, left, exit_code, grace_s), daemon=True, name="ctrl-c")
    watcher.start()
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(previous)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _watch(reader: int, left: threading.Event, exit_code: int, grace_s: float) -> None:
    while byte := os.read(reader, 1):  # empty once the other end is closed
        if byte[0] == signal.SIGINT and not left.wait(grace_s):
            os.write(2, b"interrupted\n")
            os._exit(exit_code)
