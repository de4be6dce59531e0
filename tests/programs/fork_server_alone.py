"""Serves requests on the socket of the given number, with nothing loaded: for `tests/contract/test_fork_server.py`."""

from __future__ import annotations

import socket

from tests.fork_server import run_command, serve


def main(descriptor: str) -> None:
    run_command(serve(socket.socket(fileno=int(descriptor))))
