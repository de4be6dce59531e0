"""Two model workers against one: audio-seconds learnt each second, stage gpt, small size, one core a worker.

The workers are those of `TF_CONFIG` and Slurm, each with the data work of its own rows, so that two cores are enough;
over Ray a data worker would need a third. Both learn the same batches of 16 clips. In turns: one worker; two together;
two that are not connected, with half a batch each, which is what two cores can do at best. From these and the time
that the gradient takes around the ring `bench.simulate` predicts two together. Wall-clock, so it needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import ONE_THREAD, BenchError, Others, Side, answer_turns
from bench.report import Report, Row, Target, at_least, finish, parser_for, run_main
from bench.simulate import Phases, simulate
from bench.speechlike import kathleen_lengths_s, make_corpus

CLIPS_A_BATCH = 16
CORPUS_CLIPS = 592
WARM_UP_STEPS = 3
SPEED_UP = 1.6
OFF_BY = 0.15


def main(argv: list[str]) -> int:
    parser = parser_for("cluster", __doc__)
    parser.add_argument("--size", default="small", help="of the model")
    parser.add_argument("--steps", type=int, default=12, help="steps of a turn")
    parser.add_argument("--side", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.side:
        worker_side(**arguments.side)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return finish(compare(arguments, Path(folder)), arguments.json)


def compare(arguments: argparse.Namespace, scratch: Path) -> Report:
    cores = two_cores(may_share=arguments.quick)
    steps, rounds = (2, 1) if arguments.quick else (arguments.steps, arguments.rounds)
    common = {"path": str(prepare_clips(scratch)), "steps": steps, "size": arguments.size}
    whole, half = {**common, "clips": CLIPS_A_BATCH}, {**common, "clips": CLIPS_A_BATCH // 2}
    workers = [{**whole, "core": core, "number": number, "of": 2} for number, core in enumerate(cores)]
    made: dict[str, list[list[dict[str, float]]]] = {"one": [], "apart": [], "together": [], "ring": []}
    with (
        both([{**whole, "core": cores[0]}]) as one,
        both([{**half, "core": core} for core in cores]) as apart,
        both(workers, together=True) as together,
    ):
        others = Others()
        for _ in range(rounds):
            made["one"].append(one("steps"))
            made["apart"].append(apart("steps"))
            made["together"].append(together("steps"))
            made["ring"].append(together("ring"))
        others_cores = others.cores()
    found = [Round(**{name: turns[number] for name, turns in made.items()}) for number in range(rounds)]
    context = {
        "gradient": f"{found[0].gradient_mb:.0f} MB",
        "its way around the ring": f"{statistics.median(one.ring_ms for one in found):.0f} ms",
        "step of one worker": f"{statistics.median(one.step_ms for one in found):.0f} ms",
    }
    return Report(
        name="cluster", rows=rows_of(found), others_cores=others_cores, quick=arguments.quick, context=context
    )


class Round:
    """One turn of each, as figures of the same batch."""

    def __init__(
        self,
        one: list[dict[str, float]],
        apart: list[dict[str, float]],
        together: list[dict[str, float]],
        ring: list[dict[str, float]],
    ) -> None:
        (alone,) = one
        self.step_ms = 1000 * alone["seconds"] / alone["steps"]
        self.one_rate = audio_rate(one)
        self.together_rate = audio_rate(together)
        self.ring_ms = max(side["seconds"] for side in ring) * 1000
        self.gradient_mb = ring[0]["gradient_mb"]
        # Half batches are drawn from other buckets: their time for as many padded seconds as half of a whole one has.
        seconds_a_step = alone["padded_seconds"] / alone["steps"] / 2
        self.half_ms = max(1000 * side["seconds"] * seconds_a_step / side["padded_seconds"] for side in apart)
        self.steps_per_s = alone["steps"] / max(side["seconds"] for side in together)

    @property
    def predicted_steps_per_s(self) -> float:
        """Each worker does its own rows' data work, so all of a step is the model's."""
        phases = Phases(
            process_ms=0.0,
            train_ms=self.step_ms,
            train_fixed_ms=min(self.step_ms, max(0.0, 2 * self.half_ms - self.step_ms)),
            gradient_mb=self.gradient_mb,
            link_gb_s=self.gradient_mb / self.ring_ms,
            link_latency_ms=0.0,
        )
        return simulate(phases, 1, 2, batches=200).steps_per_s


def audio_rate(sides: list[dict[str, float]]) -> float:
    """Audio-seconds a second of all workers, by the slowest one's clock."""
    return sum(side["audio_seconds"] for side in sides) / max(side["seconds"] for side in sides)


def rows_of(rounds: list[Round]) -> list[Row]:
    predicted = [one.predicted_steps_per_s for one in rounds]
    measured = [one.steps_per_s for one in rounds]
    shown = f"{statistics.median(predicted):.3f} predicted, {statistics.median(measured):.3f} measured"
    return [
        Row(
            name="two model workers",
            unit="audio-s per s",
            ours=[one.together_rate for one in rounds],
            peer=[one.one_rate for one in rounds],
            peer_name="one model worker",
            target=at_least(SPEED_UP),
        ),
        Row(
            name="two model workers, off by",
            unit=f"steps/s: {shown}",
            ours=[abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)],
            target=Target("<=", OFF_BY),
        ),
    ]


def two_cores(*, may_share: bool) -> list[int]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        return cores[:2]
    if not may_share:
        raise BenchError("two model workers need a core each, and this process may use one; --quick lets them share it")
    return cores * 2


def prepare_clips(scratch: Path) -> Path:
    from myxtts.config.data import DataConfig
    from myxtts.data.prepare import prepare

    source = make_corpus(scratch / "clips", kathleen_lengths_s(CORPUS_CLIPS))
    return prepare(source, DataConfig(cache_dir=str(scratch / "cache"), max_refused_share=0.5)).path


@contextmanager
def both(workers: list[dict[str, Any]], *, together: bool = False) -> Iterator[Callable[[str], list[dict[str, float]]]]:
    """Workers that take their turns at the same time; those that learn together wait for each other to start."""
    addresses = free_addresses(len(workers)) if together else []
    with ThreadPoolExecutor(len(workers)) as threads, ExitStack() as alive:
        starting = [
            threads.submit(Side, side_command(worker), environment(addresses, number))
            for number, worker in enumerate(workers)
        ]
        sides = [alive.enter_context(future.result()) for future in starting]
        yield lambda order: list(threads.map(partial(Side.turn, order=order), sides))


def side_command(worker: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", "bench.cluster", f"--side={json.dumps(worker)}"]


def environment(addresses: list[str], number: int) -> dict[str, str]:
    from myxtts.runtime.workers import tf_config

    # A collective waits on a thread between operations, so those are not limited; a worker has one core in any case.
    own = {name: value for name, value in ONE_THREAD.items() if name != "TF_NUM_INTEROP_THREADS"}
    return {**own, "TF_CONFIG": tf_config(addresses, number)} if addresses else own


def free_addresses(count: int) -> list[str]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def worker_side(path: str, steps: int, size: str, clips: int, core: int, number: int = 0, of: int = 1) -> None:
    """Learns, or sends a gradient around, in turns."""
    os.sched_setaffinity(0, {core})
    from bench.train import Training
    from myxtts.data.prepared import open_prepared
    from myxtts.runtime.apply import apply_plan
    from myxtts.runtime.inventory import find_inventory
    from myxtts.runtime.plan import DeviceRequest, for_model_workers, plan_devices
    from myxtts.training.team import Team

    apply_plan(for_model_workers(plan_devices(DeviceRequest(cpu_threads=1), find_inventory()), of))
    team = Team(number, of)
    training = Training(open_prepared(Path(path)), size=size, clips_a_batch=clips, team=team if of > 1 else None)
    turns = {"steps": partial(learn, training, steps), "ring": partial(send_gradient, training)}
    with training.pipeline:
        for _ in range(WARM_UP_STEPS):
            training.step()
        answer_turns({"ready": True}, lambda order: turns[order]())


def learn(training: Any, steps: int) -> dict[str, float]:
    began = time.perf_counter()
    sizes = [training.step_sized() for _ in range(steps)]
    return {
        "steps": steps,
        "seconds": time.perf_counter() - began,
        "audio_seconds": sum(size.audio_seconds for size in sizes),
        "padded_seconds": sum(size.padded_seconds for size in sizes),
    }


def send_gradient(training: Any, times: int = 5) -> dict[str, float]:
    """Zeros of every gradient's shape, summed over the workers as a step sums them; the median of some times."""
    import tensorflow as tf

    strategy = training.trainer.strategy
    shapes = [variable.shape for variable in training.trainer.current_stage().trainable_variables]

    def replica() -> Any:
        gradients = [tf.zeros(shape) for shape in shapes]
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)

    summed = tf.function(lambda: strategy.run(replica), autograph=False)
    took_s = []
    for _ in range(times + 1):  # the first one traces
        began = time.perf_counter()
        for gradient in summed():
            strategy.experimental_local_results(gradient)[0].numpy()
        took_s.append(time.perf_counter() - began)
    parameters = sum(int(tf.TensorShape(shape).num_elements()) for shape in shapes)
    return {"seconds": statistics.median(took_s[1:]), "gradient_mb": 4 * parameters / 1e6}


if __name__ == "__main__":
    raise SystemExit(run_main(main))
