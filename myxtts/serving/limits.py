"""How much the server takes on, in one object. What is beyond a limit is refused with an error that names it."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.config.checks import at_least


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Checked when it is made: raises `ConfigError`."""

    at_once: int = 8
    """Requests that are spoken at the same time, in one batch."""

    waiting: int = 32
    """Requests that may wait for one of those places; more get 429."""

    wait_s: float = 30.0
    """Longest wait for a place."""

    deadline_s: float = 300.0
    """Longest time from a request to the end of its answer."""

    unread_s: float = 20.0
    """A client that takes nothing of its answer for so long is left."""

    json_bytes: int = 128 * 1024
    """Of a JSON body: 4,096 characters take 48 kB where each is escaped twice."""

    upload_bytes: int = 10 * 2**20
    uploads_at_once: int = 4
    """Uploads in memory at the same time, so at most 40 MB."""

    clip_seconds: float = 60.0
    """Of an uploaded clip."""

    slow_s: float = 1.5
    """A sender may pause for so long, and has so long until its mean rate must be `slow_bytes_per_s`."""

    slow_bytes_per_s: int = 8 * 1024
    added_voices: int = 200
    connections: int = 512

    def __post_init__(self) -> None:
        at_least("--at-once", self.at_once, 1, hint="8 is the default")
        at_least("--waiting", self.waiting, 0, hint="0 refuses whatever cannot begin at once; 32 is the default")
        at_least("--deadline", self.deadline_s, 1, hint="300 seconds is the default")
