"""A forked process is to a test what an interpreter that starts is; only TensorFlow is there already."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ONLY_CPU, ROOT, run, run_forked, run_program

FORKED = ("-m", "tests.programs", "forked")


def test_arguments_variables_signals_output_and_exit_are_those_of_an_interpreter() -> None:
    started, forked = (start(*FORKED, "fails", ONLY_HERE="yes") for start in (run, run_forked))

    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1] == started.stderr.splitlines()[-1] == "ValueError: the end"
    assert run_forked(*FORKED, "exits", "7").returncode == 7
    assert "yes" in forked.stdout
    assert "None" in run_forked(*FORKED).stdout


@pytest.mark.parametrize("devices", [2, 3])
def test_tensorflow_is_loaded_and_its_devices_are_still_to_be_decided(devices: int) -> None:
    output = run_program("forked", "devices", str(devices)).splitlines()[-1]

    assert output.split() == ["True", "CPU:0", str(devices)]


def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_forked(*FORKED, "sleeps", "600", timeout_s=0.2)


def test_a_server_whose_owner_is_gone_ends_itself_and_what_it_runs() -> None:
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.programs", "fork_server_alone", str(theirs.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    with answers, Path(os.devnull).open("w") as nothing:
        request = json.dumps([[*FORKED, "sleeps", "600"], {**os.environ, **ONLY_CPU}]).encode()
        socket.send_fds(requests, [request], [answers.fileno(), nothing.fileno(), nothing.fileno()])
    running = os.pidfd_open(int(ours.recv(64)))

    requests.close()

    try:
        assert server.wait(timeout=60) == 0
        assert select.select([running], [], [], 60)[0], "a process that has ended can be read"
    finally:
        server.kill()
