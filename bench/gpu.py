"""On a machine with GPUs: what a training step takes there, how fast GPUs copy, and what more of them would bring.

Wall-clock, stage gpt, end to end on clips that it makes itself; every step fetches its loss, so that nothing is still
running when the clock stops. The phase times go into the simulation. Then compare placements on your own corpus:
`myxtts bench placement --train-data DIR --model-size normal`. `--anyway` runs the same on a CPU, to see that it works.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import Others
from bench.report import INCONCLUSIVE, Report, Row, finish, parser_for, run_main
from bench.simulate import Phases, show, simulate
from bench.speechlike import kathleen_lengths_s, make_corpus

COPY_MB = 64
COPIED_ROWS = 8
FLOAT_BYTES = 4


def main(argv: list[str]) -> int:
    parser = parser_for("gpu", __doc__)
    parser.add_argument("--size", default="normal", help="preset of the model")
    parser.add_argument("--steps", type=int, default=30, help="steps of a round")
    parser.add_argument("--anyway", action="store_true", help="measure without a GPU, on the CPU")
    arguments = parser.parse_args(argv)
    from myxtts.runtime.inventory import find_inventory

    gpus = len(find_inventory(0).gpus)
    if not gpus and not arguments.anyway:
        print("No GPU was found, so nothing was measured; myxtts doctor says what TensorFlow sees.", file=sys.stderr)
        return INCONCLUSIVE
    with tempfile.TemporaryDirectory() as folder:
        return finish(measure(arguments, gpus, Path(folder)), arguments.json)


def measure(arguments: argparse.Namespace, gpus: int, scratch: Path) -> Report:
    from bench.train import Training
    from myxtts.config.data import DataConfig
    from myxtts.data.prepare import prepare

    clips = 64 if arguments.quick else 592
    corpus = make_corpus(scratch / "clips", kathleen_lengths_s(clips))
    prepared = prepare(corpus, DataConfig(cache_dir=str(scratch / "cache"), text_frontend="characters"))
    training = Training(prepared, size=arguments.size)
    others = Others()
    steps, rounds = (3, 1) if arguments.quick else (arguments.steps, arguments.rounds)
    with training.pipeline:
        # One trace for every few shapes: all of them before the clock starts.
        for _ in range(2 if arguments.quick else 20):
            training.step()
        windows = [one_window(training, steps) for _ in range(rounds)]
    phases = phases_of(windows, training, copy_gb_s("/GPU:0", "/GPU:1") if gpus > 1 else None)
    show(phases, 64)
    alone = 1000 / (phases.process_ms + phases.train_ms)
    gain = simulate(phases, 1, 1).steps_per_s / alone
    rows = [
        Row(
            name=f"training at {arguments.size}, one device",
            unit="audio-s per s",
            ours=[window.audio_seconds_per_s for window in windows],
        ),
        Row(name="process phase", unit="ms per batch", ours=[w.phases["process"].ms_per_batch for w in windows]),
        Row(name="train phase", unit="ms per batch", ours=[w.phases["train"].ms_per_batch for w in windows]),
        Row(name="a second device for the data, predicted", unit="times one device", ours=[gain]),
    ]
    if gpus > 1:
        rows.append(Row(name="copy, GPU 0 to GPU 1", unit="GB/s", ours=[phases.link_gb_s]))
    return Report(name="gpu", rows=rows, others_cores=others.cores(), quick=arguments.quick, context={"GPUs": gpus})


def one_window(training: Any, steps: int) -> Any:
    training.pipeline.telemetry.window()
    for _ in range(steps):
        training.step()
    return training.pipeline.telemetry.window()


def phases_of(windows: list[Any], training: Any, link_gb_s: float | None) -> Phases:
    def median_ms(phase: str) -> float:
        return statistics.median(window.phases[phase].ms_per_batch for window in windows)

    parameters = sum(int(variable.shape.num_elements()) for variable in training.trainer.stage.trainable_variables)
    return Phases(
        process_ms=median_ms("process"),
        train_ms=median_ms("train"),
        batch_mb=training.batch_bytes / 1e6,
        gradient_mb=parameters * FLOAT_BYTES / 1e6,
        **({} if link_gb_s is None else {"link_gb_s": link_gb_s}),
    )


def copy_gb_s(source: str, destination: str, *, deep_copy: bool = False) -> float:
    """Bandwidth from one device to another as training copies its batches, each copy waited for."""
    import tensorflow as tf

    from myxtts.pipeline.devices import TensorFlowDevices

    devices = TensorFlowDevices(deep_copy=deep_copy)
    with devices.scope(source):
        batch = {"mel": tf.random.normal([COPIED_ROWS, COPY_MB * 250_000 // COPIED_ROWS])}
    times = []
    for _ in range(10):  # the fastest: the first is traced
        began = time.perf_counter()
        devices.finish(devices.copy([batch], [destination]).replicas[0], destination)
        times.append(time.perf_counter() - began)
    return COPY_MB / 1000 / min(times)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
