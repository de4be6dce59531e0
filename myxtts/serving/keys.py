"""API keys: made here, kept as SHA-256 digests in a file, compared in constant time, never logged.

A key is 256 random bits, so that its plain digest can be stored: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from myxtts.errors import ConfigError
from myxtts.files import writing

PREFIX = "myxtts-"
EVERYBODY = "everybody"
"""The owner of requests where there are no keys."""
_LINE = re.compile(r"([A-Za-z0-9_.-]{1,64}) ([0-9a-f]{64})")
_HINT = "make one with: myxtts serve --new-key NAME --api-key-file FILE"


class ApiKeys:
    """Digests by the name of their owner."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = dict(digests)

    def owner_of(self, key: str) -> str | None:
        """Whose key this is. Looks at every digest, whichever fits."""
        digest, found = digest_of(key), None
        for owner, known in self._digests.items():
            if hmac.compare_digest(digest, known):
                found = owner
        return found


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> ApiKeys:
    """A file of `name digest` lines; raises `ConfigError` for any other line, and where there is no key."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"--api-key-file {path} cannot be read: {reason}", hint=_HINT) from error
    digests: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] in digests:
            # The line itself may be a key in clear, and is not shown.
            raise ConfigError(
                f"line {number} of --api-key-file {path} is not `NAME SHA256` with a name of its own", hint=_HINT
            )
        digests[match[1]] = match[2]
    if not digests:
        raise ConfigError(f"--api-key-file {path} has no key in it", hint=_HINT)
    return ApiKeys(digests)


def add_key(path: Path, name: str) -> str:
    """Make a key, append its digest to the file (for its owner alone to read), and return the key."""
    key = PREFIX + secrets.token_urlsafe(32)
    line = f"{name} {digest_of(key)}"
    if _LINE.fullmatch(line) is None:
        raise ConfigError(
            f"--new-key {name!r} is no name for a key", hint="use up to 64 of: letters, digits, dot, dash, underscore"
        )
    if path.exists() and any(one.split(" ")[0] == name for one in path.read_text(encoding="utf-8").splitlines()):
        raise ConfigError(f"{path} has a key {name!r} already", hint="choose another name, or delete its line first")
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    return key
