"""The memory that steps of a stage take beyond what stays between them, for batches of several sizes, as JSON.

Start it with `ENVIRONMENT`: glibc then gives large blocks back at once, and TensorFlow keeps no pool of its own, so
that the highest resident memory while something runs, less what is resident before, is what was alive at once.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.config import XTTSConfig
from myxtts.models.aligner import CTCNetwork
from myxtts.models.dvae import code_lengths
from myxtts.pipeline import DeviceBatch
from myxtts.training.memory_estimate import TOKENS_PER_SECOND
from myxtts.training.trainer import XTTSTrainer

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072", "TF_ENABLE_ONEDNN_OPTS": "0"}
LABELS = 60
REFERENCE_SECONDS = 3
_STATUS = Path("/proc/self/status")


def main(size: str, stage: str, decoder: str, *batches: str) -> None:
    """Each of `batches` is CLIPSxSECONDS."""
    sizes: dict[str, Any] = {"decoder": decoder} if decoder else {}
    config = XTTSConfig(model_size=size, stage=stage, discriminator_start=0, batch_size=1, **sizes)
    trainer = XTTSTrainer(config)
    trainer.start_stage(stage)
    if trainer.current_stage().takes_ctc_loss:
        network = CTCNetwork(LABELS)
        network.build()
        trainer.current_stage().add_ctc_loss(network, 1.0)
    found: dict[str, Any] = {"variables_mb": _megabytes(trainer)}
    for batch in batches:
        clips, seconds = batch.split("x")
        host = host_batch(int(clips), float(seconds), config)
        ready = [DeviceBatch(0, (trainer.current_stage().process(host),), {})]
        trainer.learn(ready)
        steps_mb = [peak_mb(partial(trainer.learn, ready)) for _ in range(2)]
        data_mb = [peak_mb(partial(trainer.current_stage().process, host)) for _ in range(2)]
        found[batch] = {"step_mb": max(steps_mb), "process_mb": max(data_mb)}
    print(json.dumps(found))


def host_batch(clips: int, seconds: float, config: XTTSConfig) -> dict[str, Any]:
    """Noise of one length, with the text, the reference and the alignment that such a clip has."""
    random = np.random.default_rng(0)
    samples, tokens = int(seconds * SAMPLE_RATE), int(seconds * TOKENS_PER_SECOND)
    wave = (random.standard_normal((clips, samples)) * 3000).astype(np.int16)
    reference = wave[:, : REFERENCE_SECONDS * SAMPLE_RATE]
    codes = int(code_lengths(samples // 256 + 1))
    return {
        "wave": wave,
        "wave_lengths": np.full(clips, samples, np.int32),
        "reference": reference,
        "reference_lengths": np.full(clips, reference.shape[1], np.int32),
        "draw": random.random(clips, dtype=np.float32),
        "text": random.integers(4, min(200, config.model.text_vocab), (clips, tokens)).astype(np.int32),
        "text_lengths": np.full(clips, tokens, np.int32),
        "speaker": np.zeros(clips, np.int32),
        "alignment": np.tile(np.linspace(0, tokens - 1, codes).astype(np.int32), (clips, 1)),
    }


def peak_mb(work: Callable[[], Any]) -> float:
    """How far resident memory rises above where it is, while the work is done."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest starts anew
    before = _status_mb("VmRSS")
    work()
    return _status_mb("VmHWM") - before


def _status_mb(name: str) -> float:
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _megabytes(trainer: XTTSTrainer) -> dict[str, float]:
    stage, optimizer = trainer.current_stage(), trainer.optimizer
    assert optimizer is not None

    def of(variables: Any) -> float:
        return sum(float(np.prod(v.shape)) * 4 for v in variables) / 2**20

    everything = {id(v): v for v in (*trainer.model.weights, *stage.variables.values())}
    return {"weights": of(everything.values()), "optimiser": of(optimizer.variables)}
