"""What monitoring writes survives a kill, and TensorBoard can read its part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from myxtts.monitoring.events import read_events
from myxtts.monitoring.schema import StepEvent

ROOT = Path(__file__).parents[2]


def script(body: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(body), *arguments]


def test_a_writer_killed_at_any_moment_leaves_a_log_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    body = """
    import sys
    from pathlib import Path
    from myxtts.monitoring.events import EventLog, read_events

    path = Path(sys.argv[1])
    step = sum(1 for _ in read_events(path)) if path.exists() else 0
    log = EventLog(path)
    print("ready", flush=True)
    while True:
        log.write("step", stage="gpt", step=step, loss=1.0, text="x" * (step % 3000))
        step += 1
    """
    for wait_ms in (3, 11, 29):
        writer = subprocess.Popen(script(body, str(path)), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(wait_ms / 1000)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()

    steps = [event.step for event in read_events(path) if isinstance(event, StepEvent)]
    assert steps == list(range(len(steps)))
    assert len(steps) > 3


@pytest.mark.slow
def test_scalars_mels_and_audio_are_read_back_by_tensorboard(tmp_path: Path) -> None:
    body = """
    import sys
    from pathlib import Path
    import numpy as np
    from myxtts.monitoring.schema import CheckpointEvent, StepEvent
    from myxtts.monitoring.tensorboard import TensorBoardWriter

    folder = Path(sys.argv[1])
    with TensorBoardWriter(folder) as writer:
        for step in (1, 2):
            writer.on_event(StepEvent(time=0.0, stage="gpt", step=step, loss=4.0 / step))
        writer.on_event(CheckpointEvent(time=0.0, stage="gpt", step=2, path="x"))
        writer.mel("mel", np.random.default_rng(0).normal(size=(40, 80)), 2)
        writer.audio("speech", np.sin(np.arange(22050) / 20), 22050, 2)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    assert sorted(events.Tags()["tensors"]) == ["gpt/loss", "mel", "speech"], events.Tags()
    losses = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors("gpt/loss")]
    assert losses == [(1, 4.0), (2, 2.0)], losses
    width, height, png = tensor_util.make_ndarray(events.Tensors("mel")[0].tensor_proto)
    assert (width, height, png[:4]) == (b"40", b"80", b"\\x89PNG")
    assert tensor_util.make_ndarray(events.Tensors("speech")[0].tensor_proto)[0][0][:4] == b"RIFF"
    """
    done = subprocess.run(
        script(body, str(tmp_path)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
