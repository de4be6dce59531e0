"""`python -m tests.fuzz --inputs N --minutes M --seed S`; `--input K` plays one input again.

Inputs run in a process of their own: one that ends or hangs it is noted, and the next process goes on behind it. The
summary, in `--out`, is written as it goes; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myxtts.errors import MyXTTSError
from tests.fuzz import MOST_BYTES, MOST_SECONDS
from tests.fuzz.targets import TARGETS, Case

HANGS_AFTER_S = 120.0


@dataclass
class Found:
    """What inputs have shown."""

    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    largest_mb: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)
    by_target: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, number: int, target: str, what: str) -> None:
        again = f"python -m tests.fuzz --seed {seed} --input {number}"
        self.failures.append({"target": target, "again": again, "what": what})


class Fuzzer:
    """Inputs of the seed, in this process."""

    def __init__(self, folder: Path, seed: int, names: list[str]) -> None:
        self._folder, self._seed, self._names = folder, seed, names
        self._cases: dict[str, Case] = {}
        self.found = Found()

    def target_of(self, number: int) -> str:
        return self._names[number % len(self._names)]

    def one(self, number: int) -> None:
        name = self.target_of(number)
        if name not in self._cases:
            (self._folder / name).mkdir()
            self._cases[name] = TARGETS[name](self._folder / name)
        before_bytes = _forget_peak()
        began = time.process_time()
        try:
            self._cases[name](random.Random(f"{self._seed}/{number}"))
        except MyXTTSError:
            self.found.refused += 1
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            self.found.add(self._seed, number, name, traceback.format_exc(limit=-6))
        seconds, grown = time.process_time() - began, _peak_bytes() - before_bytes
        if seconds > MOST_SECONDS or grown > MOST_BYTES:
            self.found.add(self._seed, number, name, f"took {seconds:.1f} CPU-seconds and {grown / 2**20:.0f} MB")
        self.found.slowest_s = max(self.found.slowest_s, seconds)
        self.found.largest_mb = max(self.found.largest_mb, grown / 2**20)
        self.found.inputs += 1
        self.found.by_target[name] += 1


def _forget_peak() -> int:
    """Memory of this process now; its peak begins anew."""
    with Path("/proc/self/clear_refs").open("w") as file:
        file.write("5")
    return _status_bytes("VmRSS")


def _peak_bytes() -> int:
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


def _work(folder: str, seed: int, names: list[str], first: int, end: int, out: Any, place: Any) -> None:
    """A process's share; `place` holds the input at hand, for whoever finds the process dead."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fuzzer = Fuzzer(Path(tempfile.mkdtemp(dir=folder)), seed, names)
    os.fsync = lambda descriptor: None  # type: ignore[assignment]  # no input here loses its power
    for number in range(first, end):
        place.value = number
        fuzzer.one(number)
    out.send(fuzzer.found)


def run_share(folder: Path, seed: int, names: list[str], first: int, end: int) -> list[Found]:
    """Inputs `first` to `end`, each in some process."""
    context = multiprocessing.get_context("fork")
    place = context.Value("l", first, lock=False)
    shares = []
    while first < end:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(str(folder), seed, names, first, end, sender, place))
        process.start()
        sender.close()
        last, since = place.value, time.monotonic()
        while not receiver.poll(0.2) and process.is_alive() and time.monotonic() - since < HANGS_AFTER_S:
            if place.value != last:
                last, since = place.value, time.monotonic()
        try:
            shares.append(receiver.recv() if receiver.poll() else None)
        except EOFError:
            shares.append(None)
        if shares[-1] is not None:
            process.join()
            break
        process.kill()
        process.join()
        how = "hangs" if process.exitcode == -9 else f"ends the process: exit {process.exitcode}"
        lost = Found(inputs=place.value - first + 1)
        lost.add(seed, place.value, names[place.value % len(names)], how)
        shares[-1] = lost
        first = place.value + 1
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="in all, those of earlier calls included")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=int, help="this one only, in this process")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "myxtts-fuzz.json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="myxtts-fuzz-"))
    try:
        if options.input is not None:
            fuzzer = Fuzzer(folder, options.seed, list(TARGETS))
            fuzzer.one(options.input)
            print(json.dumps(vars(fuzzer.found), indent=1))
            return bool(fuzzer.found.failures)
        return _many(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _many(folder: Path, options: argparse.Namespace) -> int:
    began, total = time.monotonic(), Found()
    if options.out.is_file() and (known := json.loads(options.out.read_text()))["seed"] == options.seed:
        total = Found(**{**{k: v for k, v in known.items() if k != "seed"}, "by_target": Counter(known["by_target"])})
    print(f"seed {options.seed}, from input {total.inputs} on; summary: {options.out}", flush=True)
    while total.inputs < options.inputs and time.monotonic() - began < 60 * options.minutes:
        end = min(options.inputs, total.inputs + 500)
        for share in run_share(folder, options.seed, options.targets, total.inputs, end):
            total.inputs += share.inputs
            total.refused += share.refused
            total.slowest_s = max(total.slowest_s, share.slowest_s)
            total.largest_mb = max(total.largest_mb, share.largest_mb)
            total.by_target.update(share.by_target)
            total.failures += share.failures
            for failure in share.failures:
                print(f"BROKEN {failure['target']}: {failure['what']}\n  again: {failure['again']}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        options.out.write_text(json.dumps({"seed": options.seed, **vars(total)}, indent=1), encoding="utf-8")
    print(
        f"{total.inputs} inputs, {total.refused} refused, {len(total.failures)} failures; "
        f"slowest {total.slowest_s:.2f} CPU-s, largest {total.largest_mb:.0f} MB"
    )
    return bool(total.failures)


if __name__ == "__main__":
    sys.exit(main())
