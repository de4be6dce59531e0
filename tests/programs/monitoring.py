"""What monitoring writes: an event log without end, and TensorBoard's files read back."""

from __future__ import annotations

from pathlib import Path

from myxtts.monitoring.events import EventLog, read_events


def write_events(path: Path) -> None:
    """Goes on with the next step until it is killed."""
    step = sum(1 for _ in read_events(path)) if path.exists() else 0
    log = EventLog(path)
    print("ready", flush=True)
    while True:
        log.write("step", stage="gpt", step=step, loss=1.0, text="x" * (step % 3000))
        step += 1


def tensorboard(folder: Path) -> None:
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    from myxtts.monitoring.schema import CheckpointEvent, StepEvent
    from myxtts.monitoring.tensorboard import TensorBoardWriter

    with TensorBoardWriter(folder) as writer:
        for step in (1, 2):
            writer.on_event(StepEvent(time=0.0, stage="gpt", step=step, loss=4.0 / step))
        writer.on_event(CheckpointEvent(time=0.0, stage="gpt", step=2, path="x"))
        writer.mel("mel", np.random.default_rng(0).normal(size=(40, 80)), 2)
        writer.audio("speech", np.sin(np.arange(22050) / 20), 22050, 2)
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    assert sorted(events.Tags()["tensors"]) == ["gpt/loss", "mel", "speech"], events.Tags()
    losses = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors("gpt/loss")]
    assert losses == [(1, 4.0), (2, 2.0)], losses
    width, height, png = tensor_util.make_ndarray(events.Tensors("mel")[0].tensor_proto)
    assert (width, height, png[:4]) == (b"40", b"80", b"\x89PNG")
    assert tensor_util.make_ndarray(events.Tensors("speech")[0].tensor_proto)[0][0][:4] == b"RIFF"


def tensorboard_memory(folder: Path) -> None:
    """By how many MB the process grows over 5,000 steps, after as many."""
    import psutil

    from myxtts.monitoring.schema import StepEvent
    from myxtts.monitoring.tensorboard import TensorBoardWriter

    with TensorBoardWriter(folder) as writer:
        for step in range(10_000):
            if step == 5_000:
                before = psutil.Process().memory_info().rss
            writer.on_event(StepEvent(time=0.0, stage="gpt", step=step, loss=1.0 / (1 + step)))
        print((psutil.Process().memory_info().rss - before) / 2**20)


def main(question: str, path: str) -> None:
    questions = {"write_events": write_events, "tensorboard": tensorboard, "tensorboard_memory": tensorboard_memory}
    questions[question](Path(path))
