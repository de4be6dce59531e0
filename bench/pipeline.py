"""How much of two devices the pipeline uses: one core a device, two phases that take about the same time.

In one run, in turns, medians over the rounds: each phase alone; both side by side on two threads, unconnected
(they share caches and memory bandwidth, so this is what the machine can do); one after the other; pipelined; and
pipelined with a data phase of 0.8 times the model phase. Wall-clock, so it needs a quiet machine with two cores: a
stretch in which others took more than 5 % of a core is measured again, twice at most. The simulation of
`bench.simulate` predicts the pipelined run from the phases side by side.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from bench.measure import Others
from bench.report import Report, Row, at_least, at_most, finish, parser_for, run_main
from bench.simulate import Phases as PhaseTimes
from bench.simulate import agreement, simulate
from myxtts.monitoring.figures import PHASES
from myxtts.pipeline import BatchSize, Pipeline, Producer, SequentialPipeline, Telemetry
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.pipeline.telemetry import Activity

DATA, MODEL = "/CPU:0", "/CPU:1"
ROWS, SAMPLES, WIDTH = 8, 32_768, 512
PHASE_MS = 80.0
BUFFER = 8
CALM_CORES = 0.05
"""A stretch in which others take more is measured again; the suite's own limit decides whether to conclude."""
TRIES = 3

TARGETS = {
    "efficiency of side by side": at_least(0.97),
    "efficiency of alone": at_least(0.85),
    "speed-up over sequential": at_least(1.6),
    "stall share at 0.8": at_most(0.05),
    "oscillation": at_most(0.1),
    "telemetry cost": at_most(0.01),
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
    """One stretch: milliseconds a step, and cores that other processes took meanwhile."""

    step_ms: float
    others_cores: float
    data_ms: float | None = None
    """The data phase's own time, where both ran at once."""
    stall_share: float | None = None
    oscillation: float | None = None


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
    slower_ms = max(result.step_ms for result in results.values())
    return Timing(slower_ms, results["model"].others_cores, data_ms=results["data"].step_ms)


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
    return Timing(
        1000 * elapsed_s / count, others.cores(), stall_share=window.stall_share, oscillation=window.oscillation
    )


def make_pipeline(phases: Phases) -> Pipeline:
    return Pipeline(
        WaveSource(),
        [Producer(phases.process, DATA)],
        model_devices=[MODEL],
        buffer_size=BUFFER,
        devices=TensorFlowDevices(deep_copy=True),
        measure=lambda batch: BatchSize(ROWS * SAMPLES / 22050, ROWS * SAMPLES / 22050),
    )


def quietest(measure: Callable[[], Timing]) -> Timing:
    """The stretch again while others disturb it; the least disturbed of the tries."""
    tries = []
    for _ in range(TRIES):
        tries.append(measure())
        if tries[-1].others_cores <= CALM_CORES:
            break
    return min(tries, key=lambda timing: timing.others_cores)


def one_round(phases: Phases, seconds: float) -> dict[str, Timing]:
    batch = next(WaveSource())
    calibrate(phases, 1.0)
    tensors = phases.process(batch)
    timings = {
        "data alone": quietest(lambda: timed(lambda: phases.process(batch), seconds)),
        "model alone": quietest(lambda: timed(lambda: phases.train(tensors), seconds)),
        "side by side": quietest(lambda: side_by_side(phases, seconds)),
        "sequential": quietest(lambda: piped(make_sequential(phases), phases, seconds)),
        "pipelined": quietest(lambda: piped(make_pipeline(phases), phases, seconds)),
    }
    repeats = phases.data_repeats
    calibrate(phases, 0.8)
    timings["pipelined, data 0.8"] = quietest(lambda: piped(make_pipeline(phases), phases, seconds))
    phases.data_repeats = repeats
    return timings


def make_sequential(phases: Phases) -> SequentialPipeline:
    return SequentialPipeline(
        WaveSource(),
        [Producer(phases.process, DATA)],
        model_devices=[MODEL],
        host_buffer_size=4,
        devices=TensorFlowDevices(deep_copy=True),
    )


def telemetry_cost_us(batches: int = 20_000) -> float:
    """CPU microseconds of what a pipeline tells its telemetry about one batch."""
    telemetry = Telemetry()
    began = time.process_time()
    for _ in range(batches):
        for phase in PHASES:
            clock = telemetry.clock(phase)
            for activity in (Activity.BLOCKED, Activity.WAITING, Activity.BUSY):
                clock.switch(activity)
            clock.finished_batch()
        telemetry.batch_delivered(4, None)
        telemetry.step_finished()
    return 1e6 * (time.process_time() - began) / batches


def rows_of(rounds: list[dict[str, Timing]], telemetry_us: float) -> list[Row]:
    """The figures that have targets. Ratios are taken within a round, where load is most alike."""

    def each(value: Callable[[dict[str, Timing]], float]) -> list[float]:
        return [value(timings) for timings in rounds]

    def ms(timings: dict[str, Timing], name: str) -> float:
        return timings[name].step_ms

    figures = {
        "efficiency of side by side": each(lambda r: ms(r, "side by side") / ms(r, "pipelined")),
        "efficiency of alone": each(lambda r: max(ms(r, "data alone"), ms(r, "model alone")) / ms(r, "pipelined")),
        "speed-up over sequential": each(lambda r: ms(r, "sequential") / ms(r, "pipelined")),
        "stall share at 0.8": each(lambda r: r["pipelined, data 0.8"].stall_share or 0.0),
        "oscillation": each(lambda r: r["pipelined, data 0.8"].oscillation or 0.0),
        "telemetry cost": each(lambda r: telemetry_us / 1000 / ms(r, "pipelined")),
    }
    rows = [Row(name=name, unit="share", ours=values, target=TARGETS[name]) for name, values in figures.items()]
    predicted = each(predicted_steps_per_s)
    return [*rows, agreement("simulated 1+1, computing", predicted, each(lambda r: 1000 / ms(r, "pipelined")))]


def predicted_steps_per_s(timings: dict[str, Timing]) -> float:
    """What the simulation makes of the phases as they run side by side: they share a machine in the pipeline too."""
    both = timings["side by side"]
    assert both.data_ms is not None
    return simulate(PhaseTimes(process_ms=both.data_ms, train_ms=both.step_ms), 1, 1, buffer_size=BUFFER).steps_per_s


def main(argv: list[str]) -> int:
    parser = parser_for("pipeline", __doc__)
    parser.set_defaults(rounds=9)  # many and short: little drifts between the stretches that a ratio compares
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a stretch")
    arguments = parser.parse_args(argv)

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    phases = Phases()
    phases.train(phases.process(next(WaveSource())))
    seconds, count = (1.0, 1) if arguments.quick else (arguments.seconds, arguments.rounds)
    rounds = []
    for number in range(count):
        print(f"round {number + 1} of {count}", flush=True)
        rounds.append(one_round(phases, seconds))
    telemetry_us = telemetry_cost_us(2000 if arguments.quick else 20_000)
    report = Report(
        name="pipeline",
        rows=rows_of(rounds, telemetry_us),
        others_cores=statistics.mean(timing.others_cores for timings in rounds for timing in timings.values()),
        quick=arguments.quick,
        context={
            "step ms": {name: round(statistics.median(r[name].step_ms for r in rounds), 1) for name in rounds[0]},
            "telemetry, CPU-us a batch": round(telemetry_us, 1),
            "rounds": [{name: asdict(timing) for name, timing in timings.items()} for timings in rounds],
        },
    )
    return finish(report, arguments.json)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
