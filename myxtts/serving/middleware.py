"""What every request passes before its route: who it is from, what other sites may not do, and headers of the answer.

Plain ASGI, so that hang-ups and streams pass through as they are.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myxtts.serving.errors import RequestError
from myxtts.serving.keys import EVERYBODY
from myxtts.serving.metrics import Metrics

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

logger = logging.getLogger(__name__)

PUBLIC = ("/health", "/openapi.json", "/")
"""Without a key; so are the page's own files."""
STATIC = "/static/"
LISTS = ("/v1/audio/voices", "/v1/audio/models")
"""Without a key too, for Open WebUI sends none there: a nameless client sees the built-in speakers only."""
NOBODY = ""
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
}


class Answering:
    """Outermost: an id, security headers, one line of log and one count for every answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0
        request_id = f"req_{secrets.token_hex(8)}"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("Content-Security-Policy", API_POLICY)
                for name, value in _SECURITY.items():
                    headers[name] = value
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests[route, status] += 1
            owner = scope.get("state", {}).get("owner", "-")
            logger.info(
                "%s %s %s %s %.0f ms %s",
                request_id, scope["method"], route, status, 1000 * (time.monotonic() - began), owner,
            )  # fmt: skip


class Guard:
    """Whose request it is; refuses one without a key where there are keys, and one that another site makes."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app, self._serving = app, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._refuse_other_sites(scope["method"], headers)
            scope.setdefault("state", {})["owner"] = self._owner(scope["method"], scope["path"], headers)
            if self._serving.draining and scope["method"] not in ("GET", "HEAD"):
                raise RequestError(
                    "the server is stopping",
                    hint="try again in a while",
                    status=503,
                    code="server_stopping",
                    headers={"Retry-After": "10", "Connection": "close"},
                )
        await self._app(scope, receive, send)

    def _owner(self, method: str, path: str, headers: Headers) -> str:
        if self._serving.keys is None or path in PUBLIC or path.startswith(STATIC):
            return EVERYBODY
        if method in ("GET", "HEAD") and path in LISTS and "authorization" not in headers:
            return NOBODY
        scheme, _, key = headers.get("authorization", "").partition(" ")
        owner = self._serving.keys.owner_of(key.strip()) if scheme.lower() == "bearer" and key else None
        if owner is None:
            raise RequestError(
                "the API key is wrong" if key else "there is no API key",
                hint="send it as Authorization: Bearer KEY",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return owner

    def _refuse_other_sites(self, method: str, headers: Headers) -> None:
        """A page of another site can reach a server on loopback; without this it could speak, add and delete."""
        if self._serving.loopback and not is_loopback(_host(headers.get("host", ""))):
            raise RequestError(
                "this server answers to localhost only", hint="use its own address", status=403, code="wrong_host"
            )
        origin = headers.get("origin")
        if origin is None or origin in self._serving.origins or method in ("GET", "HEAD", "OPTIONS"):
            return
        if urlsplit(origin).netloc != headers.get("host", ""):
            raise RequestError(
                "another site may not do this", hint="name it with --cors-origin", status=403, code="cross_site"
            )


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
