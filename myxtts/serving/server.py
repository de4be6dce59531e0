"""The process that serves: sockets, connections that are slow or too many, signals, and an end that drains."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from myxtts.errors import ConfigError
from myxtts.serving.app import Serving
from myxtts.serving.errors import error_body

logger = logging.getLogger(__name__)

HEADERS_S = 1.8
"""From a connection, or from the last answer's end and the first byte behind it, to the end of the headers."""
DRAIN_S = 30
IDLE_S = 15


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that ends connections which send their headers too slowly or read nothing, and has so many of them."""

    most = 512
    unread_s = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most:
            self._refuse(503, "there are too many connections", "too_many_connections")
        else:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._headers_due is None and not self.transport.is_closing():
            self._await_headers()

    def pause_writing(self) -> None:
        """The client reads less than is sent: more than 64 kB wait here."""
        super().pause_writing()
        self._reading_due = self.loop.call_later(self.unread_s, self._leave)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def _leave(self) -> None:
        logger.warning("a client read nothing of its answer for %g s and was left", self.unread_s)
        # Closing would wait for the client to read; the application sees a client that has gone.
        self.transport.abort()

    def _stop_waiting_for_reader(self) -> None:
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None

    def _await_headers(self) -> None:
        self._headers_due = self.loop.call_later(
            HEADERS_S, self._refuse, 408, "the headers come too slowly", "request_timeout"
        )

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._headers_due = None
        if self.cycle is not None and not self.cycle.response_complete:
            return
        body = json.dumps(error_body(status, message, None, code)).encode()
        head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """Tells when it listens, and tells the application when it stops."""

    def __init__(self, config: uvicorn.Config, serving: Serving, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._serving, self._ready = serving, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            await self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but a server that was told to stop and has stopped has ended well."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._serving.drain()
        await super().shutdown(sockets)


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens; port 0 is one that the system chooses. Raises `ConfigError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(found[0], socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
        bound.listen(256)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{flag} {port} on {host} cannot be had: {reason}", hint="choose another one") from error
    return bound


def serve(app: Starlette, serving: Serving, listening: socket.socket, ready: Callable[[], Any]) -> None:
    """Until SIGTERM or Ctrl-C; then no new work is taken, and what has begun is finished within half a minute."""
    limits = {"most": serving.limits.connections, "unread_s": serving.limits.unread_s}
    protocol = type("Protocol", (GuardedProtocol,), limits)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    _Server(config, serving, ready).run(sockets=[listening])
