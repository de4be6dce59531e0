"""Run code in a process of its own: TensorFlow's devices are configured once per process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments: str, timeout_s: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS...` from the project's root, without the caller's simulation variable."""
    inherited = {key: value for key, value in os.environ.items() if key != "MYXTTS_SIMULATE_GPUS"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )


_WITHOUT_SCIKIT_LEARN = """
import sys
sys.modules["sklearn"] = None
"""
"""Keras would load it, for a third of TensorFlow's import; commands leave it out by themselves."""

_FEW_STEPS = """
import tensorflow as tf
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
"""


def run_script(script: str, *, timeout_s: float = 900, few_steps: bool = False, **environment: str) -> str:
    """Run a script that must succeed, and give back what it printed.

    One of `few_steps` runs its graphs as they were written: TensorFlow would optimise them for longer than they run.
    """
    before = _WITHOUT_SCIKIT_LEARN + (_FEW_STEPS if few_steps else "")
    result = run("-c", before + script, timeout_s=timeout_s, **environment)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def myxtts(*arguments: str, timeout_s: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "myxtts", *arguments, timeout_s=timeout_s, **environment)
