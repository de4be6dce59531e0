"""Requests that mean no good, the same ones for the same seed: broken bodies, bombs, wrong types, slow senders.

`python -m tests.hostile URL --key KEY --count 2000` sends them to a server that runs, and says what was not refused
with a 4xx within two seconds, and how the server's memory grew.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import numpy as np
import soundfile

BOUNDARY = "hostile"


@dataclass(frozen=True)
class Hostile:
    """One request as the bytes that are sent, in parts with a pause between them."""

    kind: str
    path: str
    headers: tuple[tuple[str, str], ...]
    parts: tuple[bytes, ...]
    pause_s: float = 0.0


@dataclass(frozen=True)
class Result:
    kind: str
    status: int
    seconds: float


def hostile_requests(count: int, seed: int) -> list[Hostile]:
    """All kinds in turn."""
    chance = random.Random(seed)
    return [KINDS[number % len(KINDS)](chance) for number in range(count)]


def speech(kind: str, body: bytes, content_type: str = "application/json") -> Hostile:
    return Hostile(
        kind, "/v1/audio/speech", (("Content-Type", content_type), ("Content-Length", str(len(body)))), (body,)
    )


def form(kind: str, clip: bytes, name: str = "x", consent: str = "yes", filename: str = "a.wav") -> Hostile:
    fields = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in (("name", name), ("consent", consent))
    )
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="audio_sample"; filename="{filename}"\r\n\r\n'
    body = fields.encode("utf-8", "surrogatepass") + head.encode() + clip + f"\r\n--{BOUNDARY}--\r\n".encode()
    return upload(kind, body)


def upload(kind: str, body: bytes) -> Hostile:
    headers = (("Content-Type", f"multipart/form-data; boundary={BOUNDARY}"), ("Content-Length", str(len(body))))
    return Hostile(kind, "/v1/audio/voices", headers, (body,))


def sound(seconds: float, rate: int, channels: int, container: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros((int(seconds * rate), channels)), rate, format=container, subtype=subtype)
    return file.getvalue()


def wrong_types(chance: random.Random) -> Hostile:
    field = chance.choice(["model", "input", "voice", "speed", "seed", "response_format", "temperature", "timestamps"])
    value = chance.choice([[], {}, [[1]], 10**30, -1, "\ud800", {"id": {}}, "x" * 5000])
    asked = {"model": "tts-1", "input": "Hello.", "voice": "alloy", field: value}
    return speech("wrong types", json.dumps(asked).encode())


def huge_numbers(chance: random.Random) -> Hostile:
    digits = "9" * chance.choice([100, 4000, 60_000])
    return speech(
        "huge numbers", b'{"model": "tts-1", "input": "a", "voice": "alloy", "seed": ' + digits.encode() + b"}"
    )


def deep(chance: random.Random) -> Hostile:
    return speech("deep", (b"[" if chance.random() < 0.5 else b'{"a":') * chance.choice([10_000, 20_000]))


def cut_json(chance: random.Random) -> Hostile:
    whole = json.dumps({"model": "tts-1", "input": "Hello there.", "voice": "alloy", "seed": 3}).encode()
    return speech("cut JSON", whole[: chance.randrange(1, len(whole) - 1)])


def no_unicode(chance: random.Random) -> Hostile:
    return speech("no Unicode", b'{"model": "tts-1", "input": "' + chance.randbytes(40).replace(b'"', b"") + b'\xff"}')


def wrong_media_type(chance: random.Random) -> Hostile:
    kind = chance.choice(["text/plain", "application/xml", "multipart/form-data", ""])
    return speech("media type", b'{"model": "tts-1", "input": "a", "voice": "alloy"}', kind)


def large(chance: random.Random) -> Hostile:
    if chance.random() < 0.5:
        return speech("large", b" " * 200_000)
    headers = (("Content-Type", f"multipart/form-data; boundary={BOUNDARY}"), ("Content-Length", str(2**40)))
    return Hostile("large", "/v1/audio/voices", headers, (b"--hostile\r\n",))


def cut_clip(chance: random.Random) -> Hostile:
    clip = sound(1.0, 22050, 1, chance.choice(["WAV", "FLAC", "OGG"]))
    return form("cut clip", clip[: chance.randrange(1, min(len(clip), 3000))])


def noise_clip(chance: random.Random) -> Hostile:
    head = chance.choice(
        [b"RIFF\xff\xff\xff\x7fWAVEfmt ", b"fLaC", b"OggS\x00\x02", b"ID3\x04", b"\xff\xfb\x90", b"caff", b""]
    )
    return form("noise", head + chance.randbytes(chance.choice([10, 1000, 50_000])))


def bomb(chance: random.Random) -> Hostile:
    """Kilobytes that decode to much: silence, many channels, or a header that claims hours."""
    choice = chance.randrange(3)
    if choice == 0:
        return form("bomb", sound(600.0, 8000, 1, "FLAC"))
    if choice == 1:
        return form("bomb", sound(0.02, 192_000, 64, "WAV"))
    head = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, chance.choice([1, 2**31]), 2, 2, 16)
    return form("bomb", head + b"data\xff\xff\xff\xff" + bytes(100))


def silent_clip(chance: random.Random) -> Hostile:
    if chance.random() < 0.5:
        return form("silence", sound(2.0, 22050, 1, "WAV"))
    file = io.BytesIO()
    soundfile.write(file, np.full(30_000, np.nan), 22050, format="WAV", subtype="FLOAT")
    return form("silence", file.getvalue())


def path_names(chance: random.Random) -> Hostile:
    name = chance.choice(["../../etc/passwd", "/dev/zero", "..", "a\0b", "x" * 1000, "", "CON", "\u202e"])
    return form(
        "path names", chance.randbytes(200), name=name, filename=chance.choice(["../../x.wav", "/etc/shadow", "|ls"])
    )


def no_consent(chance: random.Random) -> Hostile:
    return form("no consent", sound(1.0, 22050, 1, "WAV"), consent=chance.choice(["", "no", "false", "0"]))


def broken_form(chance: random.Random) -> Hostile:
    body = chance.choice(
        [
            b"",
            b"--other\r\n\r\n",
            f"--{BOUNDARY}\r\n".encode() * 500,
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="name"\r\n\r\n'.encode() + b"x" * 100_000,
            f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n--{BOUNDARY}--".encode(),
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nx\r\n'.encode() * 50,
        ]
    )
    return upload("broken form", body)


def slow_body(chance: random.Random) -> Hostile:
    headers = (("Content-Type", "application/json"), ("Content-Length", "1000"))
    return Hostile("slow body", "/v1/audio/speech", headers, tuple(b"{" for _ in range(chance.choice([1, 40]))), 0.1)


def slow_headers(chance: random.Random) -> Hostile:
    return Hostile("slow headers", "", (), tuple(b"G" for _ in range(chance.choice([1, 40]))), 0.1)


def wrong_length(chance: random.Random) -> Hostile:
    value = chance.choice(["-1", "abc", "1e3", "99999999999999999999999"])
    headers = (("Content-Type", "application/json"), ("Content-Length", value))
    return Hostile("wrong length", "/v1/audio/speech", headers, (b"{}",))


def long_headers(chance: random.Random) -> Hostile:
    headers = (("Content-Type", "application/json"), ("X-Long", "x" * chance.choice([70_000, 200_000])))
    return Hostile("long headers", "/v1/audio/speech", headers, (b"",))


KINDS: tuple[Callable[[random.Random], Hostile], ...] = (
    wrong_types, huge_numbers, deep, cut_json, no_unicode, wrong_media_type, large, cut_clip, noise_clip, bomb,
    silent_clip, path_names, no_consent, broken_form, slow_body, slow_headers, wrong_length, long_headers,
)  # fmt: skip


def send(url: str, key: str | None, requests: Sequence[Hostile], at_once: int = 4) -> list[Result]:
    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(lambda one: send_one(url, key, one), requests))


def send_one(url: str, key: str | None, request: Hostile) -> Result:
    """Status 0 where the server hung up without a word."""
    place = urlsplit(url)
    began = time.monotonic()
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as connection:
        if request.path:
            lines = [f"POST {request.path} HTTP/1.1", f"Host: {place.netloc}", "Connection: close"]
            lines += [f"Authorization: Bearer {key}"] if key else []
            lines += [f"{name}: {value}" for name, value in request.headers]
            _send(connection, "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n")
        answer = b""
        for part in request.parts:
            if not _send(connection, part):
                break
            if request.pause_s:
                connection.settimeout(request.pause_s)
                try:
                    answer += connection.recv(4096)
                except TimeoutError:
                    continue
                except OSError:
                    pass
                break
        connection.settimeout(30)
        try:
            while b"\r\n" not in answer and (part := connection.recv(4096)):
                answer += part
        except OSError:
            pass
    match = re.match(rb"HTTP/1\.1 (\d{3})", answer)
    return Result(request.kind, int(match[1]) if match else 0, round(time.monotonic() - began, 2))


def _send(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def resident_mb(client: httpx.Client) -> float:
    match = re.search(r"\nprocess_resident_memory_bytes (\d\S*)", client.get("/metrics").text)
    assert match is not None
    return float(match[1]) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--key")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    with httpx.Client(base_url=options.url, headers=headers, trust_env=False) as client:
        before = resident_mb(client)
        results = send(options.url, options.key, hostile_requests(options.count, 0), options.at_once)
        print(f"memory {before:.0f} MB before, {resident_mb(client):.0f} MB after")  # noqa: T201
    for kind in dict.fromkeys(result.kind for result in results):
        own = [result for result in results if result.kind == kind]
        statuses = dict(Counter(result.status for result in own))
        print(f"{kind:<14} {len(own):5} slowest {max(result.seconds for result in own):5.2f} s  {statuses}")  # noqa: T201
    late = sum(result.seconds > 2 for result in results)
    wrong = sum(not 400 <= result.status < 500 for result in results)
    print(f"{len(results)} requests, {wrong} not refused with a 4xx, {late} later than 2 s")  # noqa: T201


if __name__ == "__main__":
    main()
