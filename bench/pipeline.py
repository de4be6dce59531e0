"""How much of two devices the pipeline uses: one core a device, two phases that take about the same time.

    python bench/pipeline.py [--rounds 3] [--seconds 8] [--out bench/results/pipeline.json]

In one run, in turns, medians over the rounds: each phase alone; both side by side on two threads, unconnected
(they share caches and memory bandwidth, so this is what the machine can do); one after the other; pipelined; and
pipelined with a data phase of 0.8 times the model phase. Needs a quiet machine with two cores: it measures what
other processes take, and draws no conclusion when that is more than 5 % of a core.

Exit code: 0 every target met, 1 a target missed, 75 the machine was not quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import psutil
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from myxtts.pipeline import BatchSize, Pipeline, SequentialPipeline, Telemetry

DATA, MODEL = "/CPU:0", "/CPU:1"
ROWS, SAMPLES, WIDTH = 8, 32_768, 512
PHASE_MS = 80.0
QUIET_CORES = 0.05
INCONCLUSIVE = 75

TARGETS = {
    "efficiency_of_side_by_side": (">=", 0.95),
    "efficiency_of_alone": (">=", 0.85),
    "speed_up_over_sequential": (">=", 1.6),
    "stall_share_at_0.8": ("<", 0.05),
    "oscillation": ("<", 0.1),
    "telemetry_cost": ("<", 0.01),
}


class WaveSource:
    """Endless host batches of noise, the same ones again and again: reading must cost nothing here."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._batches = [rng.normal(size=(ROWS, SAMPLES)).astype(np.float32) for _ in range(4)]
        self._position = 0

    def __next__(self) -> dict[str, Any]:
        self._position += 1
        return {"wave": self._batches[self._position % 4]}

    def get_state(self) -> dict[str, int]:
        return {"position": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        self._position = state["position"]


class Phases:
    """Phases like training's: a frozen network over spectra, and a step with gradients; `repeats` sets the length."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)

        def weights(*shape: int) -> Any:
            return rng.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32)

        with tf.device(DATA):
            self._frozen = tf.constant(weights(513, WIDTH))
            self._deeper = tf.constant(weights(WIDTH, WIDTH))
        with tf.device(MODEL):
            self._trained = [tf.Variable(weights(WIDTH, WIDTH)) for _ in range(2)]
        self.data_repeats = self.model_repeats = 4
        self._data_step = tf.function(self._data_graph)
        self._model_step = tf.function(self._model_graph)

    def process(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        with tf.device(DATA):
            wave = tf.constant(batch["wave"])
            return {"mel": self._data_step(wave, tf.constant(self.data_repeats))}

    def train(self, tensors: Mapping[str, Any]) -> None:
        with tf.device(MODEL):
            float(self._model_step(tensors["mel"], tf.constant(self.model_repeats)))

    def _data_graph(self, wave: Any, repeats: Any) -> Any:
        spectrum = tf.abs(tf.signal.stft(wave, 1024, 256))
        hidden = tf.einsum("btf,fw->btw", spectrum, self._frozen)
        for _ in tf.range(repeats):
            hidden = tf.nn.relu(tf.einsum("btw,wv->btv", hidden, self._deeper))
        return hidden[:, :64]

    def _model_graph(self, mel: Any, repeats: Any) -> Any:
        loss = tf.constant(0.0)
        for _ in tf.range(repeats):
            with tf.GradientTape() as tape:
                hidden = tf.nn.gelu(tf.einsum("btw,wv->btv", mel, self._trained[0]))
                loss = tf.reduce_mean(tf.square(tf.einsum("btw,wv->btv", hidden, self._trained[1])))
            for variable, gradient in zip(self._trained, tape.gradient(loss, self._trained), strict=True):
                variable.assign_sub(1e-4 * gradient)
        return loss


@dataclass(frozen=True)
class Timing:
    """One segment: milliseconds a step, and cores that other processes took meanwhile."""

    step_ms: float
    others_cores: float
    stall_share: float | None = None
    oscillation: float | None = None


class Others:
    """CPU that everyone else uses: busy and stolen time of the machine without this process's own."""

    def __init__(self) -> None:
        self._wall, self._machine, self._own = time.perf_counter(), self._busy(), time.process_time()

    def cores(self) -> float:
        wall = time.perf_counter() - self._wall
        return max(0.0, (self._busy() - self._machine - (time.process_time() - self._own)) / wall)

    @staticmethod
    def _busy() -> float:
        times = psutil.cpu_times()
        return float(times.user + times.system + times.nice + times.irq + times.softirq + times.steal)


def timed(step: Callable[[], object], seconds: float) -> Timing:
    """Median-free mean over a stretch: what counts is steps per second."""
    step()
    others, began, count = Others(), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        count += 1
    return Timing(1000 * (time.perf_counter() - began) / count, others.cores())


def calibrate(phases: Phases, data_share: float) -> None:
    """Chooses repeats so that the model phase takes about PHASE_MS and the data phase `data_share` of it."""
    batch = next(WaveSource())
    tensors = phases.process(batch)

    def per_repeat(run: Callable[[], object], set_repeats: Callable[[int], None]) -> tuple[float, float]:
        times = []
        for repeats in (4, 12):
            set_repeats(repeats)
            run()
            samples = []
            for _ in range(7):
                began = time.perf_counter()
                run()
                samples.append(1000 * (time.perf_counter() - began))
            times.append(statistics.median(samples))
        slope = max((times[1] - times[0]) / 8, 1e-3)
        return slope, times[0] - 4 * slope

    model_slope, model_base = per_repeat(
        lambda: phases.train(tensors), lambda repeats: setattr(phases, "model_repeats", repeats)
    )
    phases.model_repeats = max(1, round((PHASE_MS - model_base) / model_slope))
    data_slope, data_base = per_repeat(
        lambda: phases.process(batch), lambda repeats: setattr(phases, "data_repeats", repeats)
    )
    target_ms = data_share * (model_base + phases.model_repeats * model_slope)
    phases.data_repeats = max(1, round((target_ms - data_base) / data_slope))


def side_by_side(phases: Phases, seconds: float) -> Timing:
    """Both phases at once on two threads that share nothing but the machine; the slower one is the limit."""
    batch = next(WaveSource())
    tensors = phases.process(batch)
    results: dict[str, Timing] = {}

    def run(name: str, step: Callable[[], object]) -> None:
        results[name] = timed(step, seconds)

    data = threading.Thread(target=run, args=("data", lambda: phases.process(batch)))
    data.start()
    run("model", lambda: phases.train(tensors))
    data.join()
    return Timing(max(result.step_ms for result in results.values()), results["model"].others_cores)


def piped(pipeline: Pipeline | SequentialPipeline, phases: Phases, seconds: float) -> Timing:
    """Steps through a pipeline, after a warm start and a few steps."""
    with pipeline:
        pipeline.wait_until_ready()
        for _ in range(3):
            phases.train(next(pipeline).tensors)
        # What the full buffer gives away for nothing must not count: the steady state is what is measured.
        for _ in range(pipeline.depth):
            phases.train(next(pipeline).tensors)
        pipeline.telemetry.window()
        others, began, count = Others(), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            phases.train(next(pipeline).tensors)
            count += 1
        elapsed_s = time.perf_counter() - began
        window = pipeline.telemetry.window()
    return Timing(1000 * elapsed_s / count, others.cores(), window.stall_share, window.oscillation)


def make_pipeline(phases: Phases) -> Pipeline:
    return Pipeline(
        WaveSource(),
        phases.process,
        data_device=DATA,
        model_devices=[MODEL],
        buffer_size=8,
        deep_copy=True,
        measure=lambda batch: BatchSize(ROWS * SAMPLES / 22050, ROWS * SAMPLES / 22050),
    )


def one_round(phases: Phases, seconds: float) -> dict[str, Timing]:
    batch = next(WaveSource())
    calibrate(phases, 1.0)
    tensors = phases.process(batch)
    timings = {
        "data alone": timed(lambda: phases.process(batch), seconds),
        "model alone": timed(lambda: phases.train(tensors), seconds),
        "side by side": side_by_side(phases, seconds),
        "sequential": piped(
            SequentialPipeline(
                WaveSource(),
                phases.process,
                data_device=DATA,
                model_devices=[MODEL],
                host_buffer_size=4,
                deep_copy=True,
            ),
            phases,
            seconds,
        ),
        "pipelined": piped(make_pipeline(phases), phases, seconds),
    }
    repeats = phases.data_repeats
    calibrate(phases, 0.8)
    timings["pipelined, data 0.8"] = piped(make_pipeline(phases), phases, seconds)
    phases.data_repeats = repeats
    return timings


def telemetry_cost_us(batches: int = 20_000) -> float:
    """CPU microseconds that telemetry adds to a batch: a pipeline of empty phases with it and without, in turns."""

    def cpu_us(enabled: bool) -> float:
        pipeline = Pipeline(
            WaveSource(),
            lambda batch: batch,
            data_device=None,
            model_devices=[None],
            buffer_size=8,
            telemetry=Telemetry(enabled=enabled),
        )
        with pipeline:
            next(pipeline)
            began = time.process_time()
            for _ in range(batches):
                next(pipeline)
            return 1e6 * (time.process_time() - began) / batches

    pairs = [(cpu_us(True), cpu_us(False)) for _ in range(5)]
    return statistics.median(on for on, _ in pairs) - statistics.median(off for _, off in pairs)


def summarise(rounds: list[dict[str, Timing]], telemetry_us: float) -> dict[str, float]:
    """The figures that have targets. Ratios are taken within a round, where load is most alike; then the median."""

    def median(value: Callable[[dict[str, Timing]], float]) -> float:
        return statistics.median(value(timings) for timings in rounds)

    def ms(timings: dict[str, Timing], name: str) -> float:
        return timings[name].step_ms

    return {
        "efficiency_of_side_by_side": median(lambda r: ms(r, "side by side") / ms(r, "pipelined")),
        "efficiency_of_alone": median(lambda r: max(ms(r, "data alone"), ms(r, "model alone")) / ms(r, "pipelined")),
        "speed_up_over_sequential": median(lambda r: ms(r, "sequential") / ms(r, "pipelined")),
        "stall_share_at_0.8": median(lambda r: r["pipelined, data 0.8"].stall_share or 0.0),
        "oscillation": median(lambda r: r["pipelined, data 0.8"].oscillation or 0.0),
        "telemetry_cost": telemetry_us / 1000 / median(lambda r: ms(r, "pipelined")),
    }


def met(name: str, value: float) -> bool:
    relation, limit = TARGETS[name]
    return value >= limit if relation == ">=" else value < limit


def show(rounds: list[dict[str, Timing]], figures: dict[str, float], telemetry_us: float) -> None:
    print(f"\n{'':24}{'step ms':>10}{'others, cores':>16}")
    for name in rounds[0]:
        step_ms = statistics.median(timings[name].step_ms for timings in rounds)
        others = max(timings[name].others_cores for timings in rounds)
        print(f"{name:24}{step_ms:10.1f}{others:16.2f}")
    print(f"\ntelemetry: {telemetry_us:.1f} CPU-us a batch\n")
    for name, value in figures.items():
        relation, limit = TARGETS[name]
        print(f"{name:30}{value:9.4f}   target {relation} {limit}   {'met' if met(name, value) else 'MISSED'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times that every segment is measured")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a segment")
    parser.add_argument("--out", type=Path, default=Path("bench/results/pipeline.json"))
    arguments = parser.parse_args()

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    phases = Phases()
    phases.train(phases.process(next(WaveSource())))
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
        rounds.append(one_round(phases, arguments.seconds))
    telemetry_us = telemetry_cost_us()
    figures = summarise(rounds, telemetry_us)
    show(rounds, figures, telemetry_us)
    others = max(timing.others_cores for timings in rounds for timing in timings.values())
    quiet = others <= QUIET_CORES and (os.cpu_count() or 1) >= 2
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps(
            {
                "figures": figures,
                "quiet": quiet,
                "others_cores": others,
                "telemetry_us": telemetry_us,
                "rounds": [{name: asdict(timing) for name, timing in timings.items()} for timings in rounds],
                "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "tensorflow": tf.__version__},
            },
            indent=2,
        )
    )
    if not quiet:
        print(f"\nNo conclusion: other processes took up to {others:.2f} cores. Run again on a quiet machine.")
        return INCONCLUSIVE
    missed = [name for name, value in figures.items() if not met(name, value)]
    print("\nEvery target met." if not missed else f"\nMissed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
