"""Errors of the API: one exception, and the JSON object with its four fields that every client gets.

The message never holds a path of this machine: errors of lower layers that may name files are not passed on here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from myxtts.errors import MyXTTSError

KINDS = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
"""`type` by status; every other refusal is an `invalid_request_error`."""


class RequestError(MyXTTSError):
    """A request that is refused: what is wrong with it, the way out, and the status and fields of its answer."""

    def __init__(
        self,
        problem: str,
        *,
        hint: str,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(problem, hint=hint)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        message = f"{self.problem}: {self.hint}" if self.hint else self.problem
        return error_body(self.status, message, self.param, self.code)


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The object that OpenAI's clients read, all four fields always there."""
    kind = KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def busy(problem: str, *, hint: str, retry_after_s: int) -> RequestError:
    """429 with the seconds after which a place is likely."""
    return RequestError(
        problem, hint=hint, status=429, code="rate_limit_exceeded", headers={"Retry-After": str(retry_after_s)}
    )
