"""Run code in a process of its own: TensorFlow's devices are configured once per process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from tests import fork_server
from tests.fork_server import ForkedProcess

ROOT = Path(__file__).parent.parent
ONLY_CPU = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}


def _environment(**changes: str) -> dict[str, str]:
    """Ours without the caller's simulation variable."""
    inherited = {key: value for key, value in os.environ.items() if key != "MYXTTS_SIMULATE_GPUS"}
    return {**inherited, **ONLY_CPU, **changes}


def run(*arguments: str, timeout_s: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS...` from the project's root, in an interpreter that starts for it."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def start_forked(*arguments: str, stdout: IO[str], stderr: IO[str], **environment: str) -> ForkedProcess:
    """The same in the background, in a process that has TensorFlow loaded: a tenth of the cost (see `fork_server`)."""
    return fork_server.start(list(arguments), _environment(**environment), stdout.fileno(), stderr.fileno())


def run_forked(*arguments: str, timeout_s: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    """`run` in such a process."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = start_forked(*arguments, stdout=stdout, stderr=stderr, **environment)
        try:
            code = process.wait(timeout_s)
        finally:
            process.send_signal(signal.SIGKILL)  # does nothing where it has ended
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, stdout.read(), stderr.read())


def run_program(
    name: str, *arguments: str, timeout_s: float = 900, few_steps: bool = False, fresh: bool = False, **environment: str
) -> str:
    """Run `tests.programs.NAME`, which must succeed, and give back what it printed.

    One that is to be `fresh` starts in an interpreter that has imported nothing; `few_steps`: see `tests.programs`.
    """
    start = run if fresh else run_forked
    options = ["--few-steps"] if few_steps else []
    result = start("-m", "tests.programs", *options, name, *arguments, timeout_s=timeout_s, **environment)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def myxtts(*arguments: str, timeout_s: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "myxtts", *arguments, timeout_s=timeout_s, **environment)
