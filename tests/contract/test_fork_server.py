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

from tests.processes import ROOT, run, run_forked, run_script

REPORT = """
import os, signal, sys
print(__name__, sys.argv, os.getcwd(), os.environ.get("ONLY_HERE"), os.environ["CUDA_VISIBLE_DEVICES"])
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM), sys.stdin.read())
raise ValueError("the end")
"""


def test_arguments_variables_signals_output_and_exit_are_those_of_an_interpreter() -> None:
    started, forked = (start("-c", REPORT, "a", "b", ONLY_HERE="yes") for start in (run, run_forked))

    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1] == started.stderr.splitlines()[-1] == "ValueError: the end"
    assert run_forked("-c", "raise SystemExit(7)").returncode == 7
    assert "None" in run_forked("-c", "import os; print(os.environ.get('ONLY_HERE'))").stdout


@pytest.mark.parametrize("devices", [2, 3])
def test_tensorflow_is_loaded_and_its_devices_are_still_to_be_decided(devices: int) -> None:
    output = run_script(
        f"""
loaded = "tensorflow" in sys.modules
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {devices})
print(loaded, tf.ones([2]).backing_device[-5:], len(tf.config.list_logical_devices()))
"""
    )

    assert output.split() == ["True", "CPU:0", str(devices)]


def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_forked("-c", "import os, time; os.write(1, b'x'); time.sleep(600)", timeout_s=0.2)


def test_a_server_whose_owner_is_gone_ends_itself_and_what_it_runs() -> None:
    serving = "import socket, sys\nfrom tests.fork_server import run_command, serve\n"
    serving += "run_command(serve(socket.socket(fileno=int(sys.argv[1]))))"
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-c", serving, str(theirs.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    with answers, Path(os.devnull).open("w") as nothing:
        request = json.dumps([["-c", "import time; time.sleep(600)"], dict(os.environ)]).encode()
        socket.send_fds(requests, [request], [answers.fileno(), nothing.fileno(), nothing.fileno()])
    running = os.pidfd_open(int(ours.recv(64)))

    requests.close()

    try:
        assert server.wait(timeout=60) == 0
        assert select.select([running], [], [], 60)[0], "a process that has ended can be read"
    finally:
        server.kill()
