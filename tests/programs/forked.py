"""What a process is to itself, for `tests/contract/test_fork_server.py`: it says so, and ends as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main(ending: str = "", value: str = "0") -> None:
    """`fails`: with an exception; `exits`: with the code; `sleeps`: after so many seconds; `devices`: as many."""
    print(sys.argv, Path.cwd(), os.environ.get("ONLY_HERE"), os.environ["CUDA_VISIBLE_DEVICES"])
    handlers = signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM)
    print(handlers, sys.stdin.read())
    if ending == "fails":
        raise ValueError("the end")
    if ending == "exits":
        raise SystemExit(int(value))
    if ending == "sleeps":
        time.sleep(float(value))
    if ending == "devices":
        loaded = "tensorflow" in sys.modules
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * int(value))
        print(loaded, tf.ones([2]).backing_device[-5:], len(tf.config.list_logical_devices()))
