"""`myxtts train` that suffers: under a fault of `tests.shim`, and where files may grow to some size only.

On one device functions run without graphs: tracing them would take longer than the few steps that are trained. Several
threads need the graphs: TensorFlow's constants of operations outside of them are not safe between threads.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import tensorflow as tf

from myxtts.cli.main import main as myxtts
from tests.shim import Fault, arm, counts


def main(fault: str, largest_file_bytes: str, counted: str, *flags: str) -> None:
    """`counted` is a file for the number of operations of a run that ends by itself."""
    if "--simulate-gpus" in flags:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    else:
        tf.config.run_functions_eagerly(True)
    if int(largest_file_bytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest_file_bytes), resource.RLIM_INFINITY))
    arm(Fault.from_json(fault))
    code = myxtts(["train", *flags])
    if not int(largest_file_bytes):
        Path(counted).write_text(json.dumps(counts()), encoding="utf-8")
    sys.stdout.flush()
    raise SystemExit(code)
