"""Processes of their own that do not each import TensorFlow: one process has imported it, and forks them.

The server configures no device and makes no tensor, so a process that it forks decides its devices as a fresh one does.
What such a process cannot show is start-up itself: which modules are imported, and what Python and TensorFlow read from
the environment while they load. Tests of that start an interpreter, with `tests.processes.run`.

The server ends, and ends what it still runs, when the process that started it is gone or closes the socket to it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from myxtts.runtime.backend import import_tensorflow

ROOT = Path(__file__).parent.parent
LOADED = ("keras", "myxtts.cli.train", "myxtts.training.run")
LONGEST_REQUEST_BYTES = 2**20


class ForkedProcess:
    """What tests use of a `subprocess.Popen`, for a process of the server's."""

    def __init__(self, command: list[str], answers: socket.socket) -> None:
        self.args, self._answers = command, answers
        self.returncode: int | None = None
        self.pid = self._answer(None)

    def _answer(self, timeout_s: float | None) -> int:
        if not select.select([self._answers], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout_s or 0.0)
        answer = self._answers.recv(64)
        if not answer:
            raise RuntimeError("the fork server has died")
        return int(answer)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._answer(timeout)
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(timeout=0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The other side's view of a server: it runs from here on until `close`.

    Tests share one (`start`); one of its own is for variables that a process reads while it loads, as LD_PRELOAD, and
    for further modules that every process of it needs.
    """

    def __init__(self, *modules: str, **environment: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), *modules],
                cwd=ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", **environment},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def start(self, command: list[str], environment: dict[str, str], stdout: int, stderr: int) -> ForkedProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([command, environment]).encode()
        with theirs:
            socket.send_fds(self._requests, [request], [theirs.fileno(), stdout, stderr])
        return ForkedProcess(command, ours)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


_server: ForkServer | None = None


def start(command: list[str], environment: dict[str, str], stdout: int, stderr: int) -> ForkedProcess:
    """`python COMMAND...` (a script, `-m NAME` or `-c CODE`) from the project's root, writing to two open files."""
    global _server
    _server = _server or ForkServer()
    return _server.start(command, environment, stdout, stderr)


def serve(requests: socket.socket) -> list[str]:
    """Fork for every request. Returns in the forked processes only, each with the command that it is to run."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is requests:
                message, files, _, _ = socket.recv_fds(requests, LONGEST_REQUEST_BYTES, 3)
                if not message:
                    for pid, _ in running.values():
                        os.kill(pid, signal.SIGKILL)
                    raise SystemExit
                command, environment = json.loads(message)
                answers = socket.socket(fileno=files[0])
                pid = os.fork()
                if pid == 0:
                    for ours in (requests, answers, *(other for _, other in running.values())):
                        ours.close()
                    _take_over(environment, stdout=files[1], stderr=files[2])
                    return command
                for file in files[1:]:
                    os.close(file)
                answers.send(str(pid).encode())
                running[os.pidfd_open(pid)] = (pid, answers)
            else:
                pid, answers = running.pop(ready)
                os.close(ready)
                _tell_end(pid, answers)


def _tell_end(pid: int, answers: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with answers, contextlib.suppress(BrokenPipeError):  # where nobody waits for it
        answers.send(str(code).encode())


def _take_over(environment: dict[str, str], *, stdout: int, stderr: int) -> None:
    """In the forked process: output, variables and signals as an interpreter finds them when it starts."""
    for file, number in ((stdout, 1), (stderr, 2)):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_command(command: list[str]) -> None:
    """As `python COMMAND...` does; what ends the command ends this process the same way."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    # Ctrl-C is for the tests, which then close the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # see conftest.py
    import_tensorflow()
    for name in (*LOADED, *sys.argv[2:]):
        importlib.import_module(name)
    gc.freeze()  # what is never collected is never copied
    run_command(serve(socket.socket(fileno=int(sys.argv[1]))))
