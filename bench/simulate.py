"""What d data devices and m model devices would do: a simulation, event by event, of the pipeline's phases.

    python -m bench simulate                      checks it against simulated devices, then predicts up to 64
    python -m bench simulate --run RUN            predicts from the phase times of your own run's events.jsonl
    python -m bench simulate --process-ms 90 --train-ms 120 --batch-mb 6 --gradient-mb 1764
    python -m bench simulate --process-ms 90 --train-ms 120 --batch-mb 6 --gradient-mb 1764 --network-gb-s 1.25

A batch is processed by the data device whose turn it is, waits in a buffer, is copied over one link, waits in two
slots, and is learnt by all model devices together: each takes its share of the rows, then gradients are summed over a
ring. A phase begins a batch only when there is room for what it makes. Pure: times in, figures out.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.measure import BenchError, Others
from bench.report import Report, Row, Target, finish, parser_for, run_main
from myxtts.pipeline.batches import even_shares

SLOTS = 2
MOST_DEVICES = 64
WORTH = 0.5
"""Devices pay while they bring at least this part of what as many devices more would bring at best."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """What one batch costs, in milliseconds on one device, and what has to travel."""

    process_ms: float
    train_ms: float
    """The whole batch on one model device."""
    train_fixed_ms: float = 0.0
    """The part of it that does not shrink with the rows: launching, the optimiser."""
    read_ms: float = 0.0
    batch_mb: float = 0.0
    gradient_mb: float = 0.0
    link_gb_s: float = 10.0
    """Between any two devices; 10 is a PCIe 3 x16 link in practice, 50 to 400 are NVLinks."""
    link_latency_ms: float = 0.05
    transfer_fixed_ms: float = 0.0
    """Of a batch's way to the model beside the link: an object store, a call to another process."""
    jitter: float = 0.0
    """Standard deviation of process and train times, as a share of their mean: buckets of unlike length."""

    def transfer_ms(self, model_devices: int) -> float:
        return self.transfer_fixed_ms + self.batch_mb / self.link_gb_s + model_devices * self.link_latency_ms

    def step_ms(self, model_devices: int) -> float:
        """A step on `model_devices`: the rows shared, the ring all-reduce on top."""
        rows_ms = max(0.0, self.train_ms - self.train_fixed_ms)
        hops = 2 * (model_devices - 1)
        ring_ms = hops / model_devices * self.gradient_mb / self.link_gb_s + hops * self.link_latency_ms
        return self.train_fixed_ms + rows_ms / model_devices + ring_ms

    def with_rows_of(self, model_devices: int) -> Phases:
        """The batch grown with the devices, so that each keeps its rows: work to process and to send grows too."""
        rows_ms = max(0.0, self.train_ms - self.train_fixed_ms)
        return replace(
            self,
            read_ms=self.read_ms * model_devices,
            process_ms=self.process_ms * model_devices,
            train_ms=self.train_fixed_ms + rows_ms * model_devices,
            batch_mb=self.batch_mb * model_devices,
        )


@dataclass(frozen=True)
class Prediction:
    """The steady state."""

    data_devices: int
    model_devices: int
    steps_per_s: float
    data_busy: float
    """Mean share of the time that a data device works."""
    model_busy: float
    stall_share: float
    bottleneck: str


def simulate(
    phases: Phases,
    data_devices: int,
    model_devices: int,
    *,
    buffer_size: int = 50,
    batches: int = 2000,
    seed: int = 0,
) -> Prediction:
    """Runs the phases over `batches` batches; the first fifth fills the buffer and does not count."""
    times = _draws(phases, model_devices, seed)
    slots = SLOTS if buffer_size > SLOTS else 1
    # Each data device has its turn, and a share of the buffer of its own.
    rooms = [max(1, share) for share in even_shares(buffer_size - slots, data_devices)]
    free_at = [0.0] * data_devices
    started, processed, taken, sent, begun, ended = ([0.0] * batches for _ in range(6))
    read = data_work = 0.0
    first = batches // 5
    for k in range(batches):
        process_ms, step_ms = next(times)
        read += phases.read_ms
        turn = k % data_devices
        # A data device reserves room before it works.
        earlier = k - data_devices * rooms[turn]
        started[k] = max(read, free_at[turn], taken[earlier] if earlier >= 0 else 0.0)
        # Reading is ahead by a batch of each data device.
        read = max(read, started[k - data_devices + 1] if k >= data_devices - 1 else 0.0)
        done = free_at[turn] = started[k] + process_ms
        # Batches keep their order: one that is ready early waits for those before it.
        processed[k] = max(done, processed[k - 1] if k else 0.0)
        taken[k] = max(processed[k], sent[k - 1] if k else 0.0, begun[k - slots] if k >= slots else 0.0)
        sent[k] = taken[k] + phases.transfer_ms(model_devices)
        begun[k] = max(sent[k], ended[k - 1] if k else 0.0)
        ended[k] = begun[k] + step_ms
        data_work += process_ms if k >= first else 0.0
    span_ms = ended[-1] - ended[first - 1]
    train_ms = sum(ended[k] - begun[k] for k in range(first, batches))
    count = batches - first
    costs = _costs(phases, data_devices, model_devices)
    return Prediction(
        data_devices=data_devices,
        model_devices=model_devices,
        steps_per_s=1000 * count / span_ms,
        data_busy=min(1.0, data_work / span_ms / data_devices),
        model_busy=train_ms / span_ms,
        stall_share=1 - train_ms / span_ms,
        bottleneck=max(costs, key=lambda name: costs[name]),
    )


def _draws(phases: Phases, model_devices: int, seed: int) -> Iterator[tuple[float, float]]:
    """Process and step times of batch after batch; a long batch is long for both."""
    rng = random.Random(seed)
    step_ms = phases.step_ms(model_devices)
    while True:
        factor = max(0.1, rng.gauss(1.0, phases.jitter)) if phases.jitter else 1.0
        yield phases.process_ms * factor, step_ms * factor


def _costs(phases: Phases, data_devices: int, model_devices: int) -> dict[str, float]:
    """Milliseconds a batch of each phase, were it alone."""
    return {
        "reading": phases.read_ms,
        "data devices": phases.process_ms / data_devices,
        "transfer": phases.transfer_ms(model_devices),
        "model devices": phases.step_ms(model_devices),
    }


@dataclass(frozen=True)
class Scaling:
    """The best split of every number of devices, and where more stop paying."""

    best: dict[int, Prediction]
    """By number of devices, from 2 on."""
    work: dict[int, float]
    """Work a second of the best split, in batches of the size that one model device takes."""
    pays_up_to: int


def scaling(
    phases: Phases,
    *,
    most: int = MOST_DEVICES,
    data_devices: int | None = None,
    grow_batch: bool = False,
    worth: float = WORTH,
    **options: Any,
) -> Scaling:
    """Tries every split of 2 to `most` devices; `data_devices` fixes the producers."""
    best: dict[int, Prediction] = {}
    work: dict[int, float] = {}
    for count in range(2, most + 1):
        splits = range(1, count) if data_devices is None else [data_devices]
        sized = {d: phases.with_rows_of(count - d) if grow_batch else phases for d in splits if d < count}
        # Without jitter and buffers the slowest phase decides; only splits that look best by that are simulated.
        likely = sorted(sized, key=lambda d: max(_costs(sized[d], d, count - d).values()) / (count - d) ** grow_batch)
        tried = [simulate(sized[d], d, count - d, **options) for d in likely[:2]]
        best[count] = max(tried, key=lambda one: _work(one, grow_batch))
        work[count] = _work(best[count], grow_batch)
    return Scaling(best, work, pays_up_to(work, worth))


def _work(prediction: Prediction, grow_batch: bool) -> float:
    return prediction.steps_per_s * (prediction.model_devices if grow_batch else 1)


def pays_up_to(work: dict[int, float], worth: float = WORTH) -> int:
    """The number of devices beyond which no larger number brings `worth` of its proportional gain."""
    for count in sorted(work):
        if all(work[more] / work[count] - 1 < worth * (more - count) / count for more in work if more > count):
            return count
    return max(work)


@dataclass(frozen=True)
class MeasuredRun:
    """What a run's own events say."""

    phases: Phases
    steps_per_s: float
    model_devices: int
    overlapped: bool
    """False where one device did both, one after the other."""


def phases_of_run(run: Path) -> MeasuredRun:
    """Phase times of a run's last windows, scaled to one model device, and the steps a second that it made."""
    from myxtts.monitoring.events import read_events
    from myxtts.monitoring.figures import WindowFigures
    from myxtts.monitoring.schema import WindowEvent

    events = [event for event in read_events(run / "events.jsonl") if isinstance(event, WindowEvent)]
    if not events:
        raise BenchError(
            f"{run} has no window with phase times in its events.jsonl: give a run of more steps than --log-every, or "
            "the times themselves with --process-ms and --train-ms"
        )
    windows = [event.figures for event in events if event.stage == events[-1].stage][-5:]

    def median(value: Callable[[WindowFigures], float | None]) -> float:
        return statistics.median(value(window) or 0.0 for window in windows)

    transfer_ms = median(lambda window: window.phase("transfer").ms_per_batch)
    models = windows[-1].model_devices
    phases = Phases(
        read_ms=median(lambda window: window.phase("source").ms_per_batch),
        process_ms=median(lambda window: window.phase("process").ms_per_batch),
        train_ms=median(lambda window: window.phase("train").ms_per_batch) * len(models),
        batch_mb=10.0 * transfer_ms,
    )
    overlapped = not windows[-1].shares_device
    return MeasuredRun(phases, 1000 / median(lambda window: window.step_ms), len(models), overlapped)


FIELDS = {
    "process_ms": "data device's work on a batch",
    "train_ms": "model device's work on a batch",
    "train_fixed_ms": "the part of it that does not shrink when rows are shared",
    "batch_mb": "size of a processed batch",
    "gradient_mb": "size of the gradient: 4 bytes a parameter; 51 at small, 1764 at big",
    "link_gb_s": "bandwidth between devices",
    "jitter": "range of the batches' times, as a share",
}
"""What of `Phases` can be given, each by a flag of its name."""


CLUSTER_FIELDS = {
    "network_gb_s": "bandwidth between nodes; 1.25 is 10 Gbit/s",
    "node_devices": "devices of a node",
    "store_ms_per_mb": "the object store's cost",
    "days_between_failures": "of one device",
    "restart_s": "from a loss to the next step",
    "checkpoint_steps": "steps between checkpoints",
}
"""What of `bench.simulate_cluster.Cluster` can be given; any of them asks for the prediction over nodes."""


def main(argv: list[str]) -> int:
    parser = parser_for("simulate", __doc__)
    parser.add_argument("--run", type=Path, help="a run of yours; the phase times in its events.jsonl are used")
    for name, what in FIELDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=what)
    parser.add_argument("--epoch-batches", type=int, default=500, help="batches of one model device in an epoch")
    for name, what in CLUSTER_FIELDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=f"of a cluster: {what}")
    parser.add_argument("--most", type=int, default=MOST_DEVICES, help="largest number of devices")
    arguments = parser.parse_args(argv)
    report = Report(name="simulate", rows=[], others_cores=0.0, quick=arguments.quick)
    given = {name: value for name in FIELDS if (value := getattr(arguments, name)) is not None}
    if arguments.run or given:
        phases = _given(arguments.run, given, report)
    else:
        from bench.simulated_devices import check

        others = Others()
        phases, report.rows = check(rounds=1 if arguments.quick else arguments.rounds, quick=arguments.quick)
        report.others_cores = others.cores()
        # Sleeping phases do not mind neighbours, short of a machine where a sleeper is not woken.
        report.quiet_cores = 1.0
    cluster = {name: value for name in CLUSTER_FIELDS if (value := getattr(arguments, name)) is not None}
    if cluster:
        show_cluster(phases, cluster, arguments.epoch_batches)
    else:
        show(phases, arguments.most)
    return finish(report, arguments.json)


def _given(folder: Path | None, given: dict[str, float], report: Report) -> Phases:
    """The phases of a run with what was given instead; without a run, what was given."""
    if folder is None:
        if missing := {"process_ms", "train_ms"} - set(given):
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in sorted(missing))
            raise BenchError(f"{flags} must be given too, or a run with --run: a prediction needs both devices' times")
        return Phases(**given)
    run = phases_of_run(folder)
    predicted = simulate(run.phases, 1, run.model_devices).steps_per_s
    if run.overlapped:
        report.rows.append(agreement("this run", [predicted], [run.steps_per_s]))
    else:
        gain = predicted / run.steps_per_s
        report.rows.append(Row(name="a device for the data, predicted", unit="times this run", ours=[gain]))
    return replace(run.phases, **given)


def agreement(name: str, predicted: list[float], measured: list[float]) -> Row:
    """How far off a prediction is, whichever way: a value of 0.1 is 10 %."""
    off = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    shown = f"{statistics.median(predicted):.2f} predicted, {statistics.median(measured):.2f} measured"
    return Row(name=f"{name}, off by", unit=f"steps/s: {shown}", ours=off, target=Target("<=", 0.1))


def show(phases: Phases, most: int) -> None:
    print(f"\n{phases}")
    for title, options in (
        ("the same batch shared by all, one data device", {"data_devices": 1}),
        ("the same batch shared by all, data devices as needed", {}),
        ("a batch that grows with the model devices, data devices as needed", {"grow_batch": True}),
    ):
        found = scaling(phases, most=most, batches=150, **options)
        print(
            f"\n{title}\n{'devices':>8} {'data':>5} {'model':>6} {'work/s':>9} {'times 2':>8} {'busy d/m':>10}  limit"
        )
        for count in sorted({2, 3, 4, 6, 8, 12, 16, 24, 32, 48, most, found.pays_up_to}):
            if count in found.best:
                one = found.best[count]
                busy = f"{one.data_busy:.0%}/{one.model_busy:.0%}"
                print(
                    f"{count:8} {one.data_devices:5} {one.model_devices:6} {found.work[count]:9.2f} "
                    f"{found.work[count] / found.work[2]:8.2f} {busy:>10}  {one.bottleneck}"
                )
        print(f"adding devices stops paying at {found.pays_up_to}")


def show_cluster(phases: Phases, given: dict[str, float], epoch_batches: int) -> None:
    from bench.simulate_cluster import Cluster, lines, table

    whole = {
        name: int(value) if name in ("node_devices", "checkpoint_steps") else value for name, value in given.items()
    }
    cluster = Cluster(**whole)  # type: ignore[arg-type]
    print(f"\n{phases}\n{cluster}\na batch that grows with the model workers, data workers as needed")
    for line in lines(table(phases, cluster, epoch_batches=epoch_batches)):
        print(line)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
