"""How the benchmarks measure: CPU-seconds, what other processes take meanwhile, and sides that take turns.

CPU-seconds count every thread of a process and hardly change with a busy neighbour; wall-clock does. Two sides are
measured in turns, round by round, so that what disturbs one disturbs the other too.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
PEER_VARIABLE = "MYXTTS_PEER_PYTHON"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
}
"""Environment of a measured side: waiting threads of BLAS would otherwise count as its CPU time."""


class BenchError(Exception):
    """A side could not be measured; the message has its last words."""


def peer_python() -> str | None:
    """The Python that has coqui-tts, from MYXTTS_PEER_PYTHON; `bench/peers.md` says how to make one."""
    path = os.environ.get(PEER_VARIABLE)
    if path and not Path(path).is_file():
        raise BenchError(f"{PEER_VARIABLE} is {path}, which does not exist; see bench/peers.md")
    return path or None


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU-seconds of this process and of the children that it waited for."""
    before = own_cpu_s()
    work()
    return own_cpu_s() - before


def own_cpu_s() -> float:
    # Not os.times(): it counts in hundredths of a second.
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Others:
    """Cores that everyone else uses: busy and stolen time of the machine without ours and our children's."""

    def __init__(self) -> None:
        self._wall, self._machine, self._own = time.perf_counter(), machine_busy_s(), family_busy_s()

    def cores(self) -> float:
        wall_s = max(1e-9, time.perf_counter() - self._wall)
        return max(0.0, (machine_busy_s() - self._machine - (family_busy_s() - self._own)) / wall_s)


def machine_busy_s() -> float:
    times = psutil.cpu_times()
    names = ("user", "system", "nice", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


def family_busy_s() -> float:
    """CPU-seconds of this process and its descendants, living or waited for."""
    total = own_cpu_s()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:4])
    return total


def run_side(command: list[str], environment: Mapping[str, str] = ONE_THREAD) -> dict[str, Any]:
    """Run one side to its end, on one thread by default; its last line of output is JSON."""
    done = subprocess.run(
        command, cwd=HERE.parent, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


class Side:
    """A side that stays alive between its turns: what it builds and compiles does not count in any round.

    The child prints one JSON object when it is ready, and one for each line that it reads.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str] = ONE_THREAD) -> None:
        self._command = command
        # Kept aside: TensorFlow and torch chat there, and it is wanted only when the side dies.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed in close
        self._process = subprocess.Popen(
            command,
            cwd=HERE.parent,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.ready = self._read()

    def turn(self, order: str = "go") -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # Foreign libraries print too; an answer is a line that begins like an object.
        for line in self._process.stdout:
            if line.startswith("{"):
                figures: dict[str, Any] = json.loads(line)
                return figures
        code = self._process.wait()
        self._errors.seek(0)
        last_words = self._errors.read()[-2000:]
        raise BenchError(f"{' '.join(self._command)} ended with exit code {code} instead of answering:\n{last_words}")


def answer_turns(ready: Mapping[str, Any], turn: Callable[[str], Mapping[str, Any]]) -> None:
    """The child's half of `Side`."""
    print(json.dumps(dict(ready)), flush=True)
    for line in sys.stdin:
        print(json.dumps(dict(turn(line.strip()))), flush=True)


@contextlib.contextmanager
def sides(commands: Mapping[str, list[str] | None]) -> Iterator[dict[str, Side]]:
    """Every side that has a command, alive until the block ends."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Side(command)) for name, command in commands.items() if command is not None}
