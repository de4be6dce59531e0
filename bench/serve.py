"""Serving: a server in one process, clients in another, over loopback. First audio byte and real-time factor at 1, 4
and 16 streams, what batching gives per CPU-second, overload at ten times the capacity, and clients that hang up.

Speaks with `--voice`, or with a voice of random weights and the size tiny, whose sentences all take their full length
and are tried three times: its cost means nothing for a trained voice, what batching and queueing do to it does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.measure import ONE_THREAD, BenchError, Others
from bench.report import Report, Row, at_least, at_most, finish, parser_for, run_main

SPOKEN = "The press of this city was printing books for all the people who could read. Others looked at the pictures."
WORDS = SPOKEN.split()
TEXTS = ["{} {}".format(" ".join(WORDS[turns:]), " ".join(WORDS[:turns])) for turns in range(len(WORDS))]
"""Of one length and each another: requests for the same text would share its prompt."""
STREAMS = (1, 4, 16)
_asked = itertools.count()
PLACES, WAITING = 4, 4
TOO_MUCH = 10


@dataclass
class Load:
    """What clients saw, and what the server spent."""

    first_byte_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    audio_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0

    def first_byte(self, share: float) -> float:
        return sorted(self.first_byte_s)[min(len(self.first_byte_s) - 1, int(share * len(self.first_byte_s)))]

    @property
    def real_time_factor(self) -> float:
        """Seconds of waiting for a second of speech, each client by itself."""
        return sum(self.whole_s) / self.audio_s


class Server:
    """A running server, seen from outside."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self._process = url, psutil.Process(pid)

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", answer.read().decode(), re.M)}

    def cpu_s(self) -> float:
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def memory_mb(self) -> float:
        return float(self._process.memory_info().rss / 2**20)

    @contextmanager
    def measured(self) -> Iterator[Load]:
        load = Load()
        audio_s, cpu_s = self.metrics()["myxtts_audio_seconds_total"], self.cpu_s()
        yield load
        load.audio_s = self.metrics()["myxtts_audio_seconds_total"] - audio_s
        load.cpu_s, load.memory_mb = self.cpu_s() - cpu_s, self.memory_mb()


@contextmanager
def server(voice: Path, at_once: int, waiting: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="myxtts-bench-") as folder:
        command = [sys.executable, "-m", "myxtts", "serve", "--voice", str(voice), "--port", "0"]
        command += ["--voices-dir", folder, "--at-once", str(at_once), "--waiting", str(waiting)]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment())
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "listening on" not in line:
                raise BenchError((Path(folder) / "log").read_text()[-2000:])
            yield Server(line.split()[-1], process.pid)
        finally:
            process.terminate()
            process.wait(60)


def _environment() -> dict[str, str]:
    return {**os.environ, **ONE_THREAD}


async def ask(url: str, load: Load, *, leave_s: float | None = None) -> int:
    """One request on a connection of its own; with `leave_s` the client hangs up after so long."""
    place = urlsplit(url)
    text = TEXTS[next(_asked) % len(TEXTS)]
    body = json.dumps({"model": "tts-1", "input": text, "voice": "alloy", "response_format": "pcm"}).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        if leave_s is not None:
            await asyncio.sleep(leave_s)
            return 0
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        await reader.read(1)
        if status == 200:
            load.first_byte_s.append(time.perf_counter() - began)
        while await reader.read(2**16):
            pass
        if status == 200:
            load.whole_s.append(time.perf_counter() - began)
    finally:
        writer.close()
    load.statuses[status] = load.statuses.get(status, 0) + 1
    return status


async def streams(url: str, load: Load, count: int, each: int) -> None:
    async def one() -> None:
        for _ in range(each):
            await ask(url, load)

    await asyncio.gather(*(one() for _ in range(count)))


async def insistent(url: str, load: Load, count: int, seconds: float) -> None:
    """Clients that ask again and again for so long; one that is refused waits a second, whatever it was told."""
    until = time.perf_counter() + seconds

    async def one(number: int) -> None:
        await asyncio.sleep(number / count)
        while time.perf_counter() < until:
            if await ask(url, load) != 200:
                await asyncio.sleep(1.0)

    await asyncio.gather(*(one(number) for number in range(count)))


async def leaving(url: str, count: int) -> None:
    chance, load = random.Random(0), Load()
    for first in range(0, count, 20):
        await asyncio.gather(
            *(ask(url, load, leave_s=chance.random() * 0.3) for _ in range(min(20, count - first))),
            return_exceptions=True,
        )


def until_idle(running: Server) -> float:
    began = time.perf_counter()
    while running.metrics()["myxtts_speaking"] or running.metrics()["myxtts_waiting"]:
        time.sleep(0.02)
        if time.perf_counter() - began > 30:
            raise BenchError("work of clients that have gone is still done after 30 s")
    return time.perf_counter() - began


def batching(voice: Path, each: int) -> tuple[dict[int, Load], Load]:
    """By number of streams; and the most of them again, one at a time."""
    batched = {}
    with server(voice, max(STREAMS), max(STREAMS)) as running:
        for count in STREAMS:
            with running.measured() as load:
                asyncio.run(streams(running.url, load, count, each))
            batched[count] = load
    with server(voice, 1, max(STREAMS)) as running, running.measured() as alone:
        asyncio.run(streams(running.url, alone, max(STREAMS), each))
    return batched, alone


def overload(voice: Path, seconds: float, hang_ups: int) -> tuple[Load, Load, float, list[float]]:
    """At capacity, far beyond it, and after clients have hung up."""
    with server(voice, PLACES, WAITING) as running:
        with running.measured() as full:
            asyncio.run(insistent(running.url, full, PLACES + WAITING, seconds))
        with running.measured() as beyond:
            asyncio.run(insistent(running.url, beyond, TOO_MUCH * (PLACES + WAITING), seconds))
        memories = [full.memory_mb, beyond.memory_mb]
        asyncio.run(leaving(running.url, hang_ups))
        return full, beyond, until_idle(running), [*memories, running.memory_mb()]


def rows_of(batched: dict[int, Load], alone: Load) -> list[Row]:
    rows = []
    for count, load in batched.items():
        rows += [
            Row(name=f"first byte at {count} streams, median", unit="s", ours=[load.first_byte(0.5)]),
            Row(name=f"first byte at {count} streams, 95 of 100", unit="s", ours=[load.first_byte(0.95)]),
            Row(name=f"real-time factor at {count} streams", unit="s per s of speech", ours=[load.real_time_factor]),
        ]
    most = batched[max(batched)]
    return [
        *rows,
        Row(
            name=f"batched at {max(batched)} streams",
            unit="audio-s per CPU-s",
            ours=[most.audio_s / most.cpu_s],
            peer=[alone.audio_s / alone.cpu_s],
            peer_name="one at a time",
            target=at_least(1.8),
        ),
    ]


def main(argv: list[str]) -> int:
    parser = parser_for("serve", __doc__)
    parser.add_argument("--voice", type=Path, help="a run or a voice folder; without it, one of random weights")
    parser.add_argument("--overload-s", type=float, default=60.0, help="seconds at capacity, and as many beyond it")
    parser.add_argument("--hang-ups", type=int, default=1000, help="clients that hang up at random")
    arguments = parser.parse_args(argv)
    quick = arguments.quick
    with tempfile.TemporaryDirectory(prefix="myxtts-bench-") as folder:
        voice = arguments.voice or random_voice(Path(folder) / "voice")
        others = Others()
        batched, alone = batching(voice, 1 if quick else 3)
        full, beyond, idle_s, memories = overload(
            voice, 5.0 if quick else arguments.overload_s, 20 if quick else arguments.hang_ups
        )
        others_cores = others.cores()
    unexpected = sum(count for status, count in beyond.statuses.items() if status not in (200, 429))
    rows = [
        *rows_of(batched, alone),
        Row(
            name="first byte of accepted at ten times the capacity, 95 of 100",
            unit="s",
            ours=[beyond.first_byte(0.95)],
            peer=[full.first_byte(0.95)],
            peer_name="at capacity",
            target=at_most(2.0),
        ),
        Row(name="answers that are neither 200 nor 429", unit="requests", ours=[float(unexpected)], target=at_most(0)),
        Row(name="memory under overload", unit="MB", ours=[memories[1]], peer=[memories[0]], target=at_most(1.1)),
        Row(name="work left by clients that hung up", unit="s", ours=[idle_s], target=at_most(1.0)),
    ]
    context: dict[str, Any] = {
        "answers beyond capacity": dict(sorted(beyond.statuses.items())),
        "memory after hang-ups": f"{memories[2]:.0f} MB",
        "speech made at capacity": f"{full.audio_s:.0f} s for {full.cpu_s:.0f} CPU-s",
        "requests": sum(len(load.whole_s) for load in batched.values()),
        "median of a whole answer at 16": f"{statistics.median(batched[16].whole_s):.2f} s",
    }
    return finish(
        Report(name="serve", rows=rows, others_cores=others_cores, quick=quick, context=context), arguments.json
    )


def random_voice(folder: Path) -> Path:
    """The size tiny with a stop that never wins, exported; made in a process that ends, with its TensorFlow."""
    command = [sys.executable, "-m", "bench.random_voice", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr[-2000:])
    return folder


if __name__ == "__main__":
    raise SystemExit(run_main(main))
