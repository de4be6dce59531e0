"""Servers in processes of their own over loopback, on ports that the system chooses, and runs for them to show."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from myxtts.audio.io import write_audio
from myxtts.data.collected import Heard, Kept, SetAside, opened, piece_id
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.figures import PhaseFigures, WindowFigures
from tests.fork_server import ForkedProcess
from tests.processes import start_forked


@dataclass
class RunningServer:
    """A server that listens."""

    url: str
    wyoming: str | None
    process: ForkedProcess
    log: Path

    def stop(self, timeout_s: float = 60.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def running_server(folder: Path, voice: Path, *flags: str, start_s: float = 240.0) -> Iterator[RunningServer]:
    """`myxtts serve` of a voice; its added voices and its log are in the folder."""
    log = folder / "server.log"
    arguments = ["--voice", str(voice), "--port", "0", "--voices-dir", str(folder / "added"), *flags]
    with tempfile.TemporaryFile("w+") as stdout, log.open("w") as stderr:
        process = start_forked("-m", "myxtts", "serve", *arguments, stdout=stdout, stderr=stderr)
        try:
            until = time.monotonic() + start_s
            said = ""
            while "listening on http" not in said:
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < until, log.read_text()[-3000:]
                time.sleep(0.1)
                stdout.seek(0)
                said = stdout.read()
            url = re.search(r"listening on (http://\S+)", said)
            wyoming = re.search(r"listening on (tcp://\S+)", said)
            assert url is not None
            yield RunningServer(url[1], wyoming[1] if wyoming else None, process, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def spoken_noise(seconds: float, seed: int = 3) -> np.ndarray:
    """Loud enough to be a reference."""
    return (np.random.default_rng(seed).standard_normal(int(seconds * 22050)) * 0.1).astype(np.float32)


def make_run(folder: Path, *, steps: int = 60, ended: bool = False) -> EventLog:
    """A run as training writes it: events, and one sample."""
    (folder / "samples").mkdir(parents=True)
    write_audio(folder / "samples" / "gpt-40.wav", spoken_noise(1.0), 22050)
    log = EventLog(folder / "events.jsonl")
    log.write("run_start", version="0.2", command="myxtts train", mode="dual", stages=["gpt"])
    log.write("training_start", stage="gpt", step=1, total_steps=100)
    for step in range(1, steps + 1):
        log.write("step", stage="gpt", step=step, loss=4.0 / (1 + step / 20))
    log.write("window", stage="gpt", step=steps, **_figures().to_event())
    log.write("validation", stage="gpt", step=40, loss=1.6)
    log.write("sample", stage="gpt", step=40, path="samples/gpt-40.wav", text="Hello there.")
    log.write("warning", message="the buffer ran empty", hint="raise --buffer-size")
    if ended:
        log.write("run_end", reason="finished", message="all stages are done")
    return log


def make_collected(folder: Path, language: str = "en") -> None:
    """A folder as `collect` leaves it, anew: two pieces kept, one set aside."""
    shutil.rmtree(folder, ignore_errors=True)
    with opened(folder) as collected:
        collected.begin("anna", {"kind": "collect"})
        for number in range(3):
            write_audio(collected.wav(piece_id("anna", number)), spoken_noise(0.5, number), 22050)
            collected.add("anna", Heard(number, 2.0 * number, 2.0 * number + 0.5, None, ""))
        texts = {"anna_00001": "The first one.", "anna_00002": "The second one."}
        kept = [Kept(own, text, "anna", language) for own, text in texts.items()]
        aside = SetAside("anna_00003", "noisy: 9 dB", "The third", "anna", language, "anna", 4.0, 4.5)
        collected.finish("anna", kept, [aside])


def _figures() -> WindowFigures:
    return WindowFigures(
        seconds=10.0,
        steps=40,
        step_ms=250.0,
        phases={name: PhaseFigures(busy=0.4) for name in ("source", "process", "transfer", "train")},
        data_devices=("/GPU:0",),
        model_devices=("/GPU:1",),
        device_busy={"/GPU:0": 0.41, "/GPU:1": 0.93},
        stall_share=0.02,
        buffer_depth=31.5,
        buffer_capacity=50,
    )
