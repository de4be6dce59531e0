"""A run in TensorBoard: scalars from its events, and mels and audio on request.

TensorFlow is imported and the files are made at the first write, after devices are configured. A failure is logged
once, and nothing is written from then on: it must not end a run.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.errors import MissingDependencyError
from myxtts.monitoring.figures import WindowFigures
from myxtts.monitoring.schema import Event, StepEvent, ValidationEvent, WindowEvent

logger = logging.getLogger(__name__)


class TensorBoardWriter:
    """Writes a run's TensorBoard files into `log_dir`."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._writer: Any = None
        self._failed = False

    def on_event(self, event: Event) -> None:
        """A subscriber of `EventLog`: numbers become scalars."""
        if isinstance(event, (StepEvent, ValidationEvent, WindowEvent)):
            self.scalars(event_scalars(event), event.step)

    def scalars(self, values: dict[str, float], step: int) -> None:
        def write(summary: Any) -> None:
            for name, value in values.items():
                summary.scalar(name, np.float32(value))  # a Python number would stay in TensorFlow's memory for good

        self._write(step, write)

    def mel(self, name: str, mel_TM: np.ndarray[Any, Any], step: int) -> None:
        """A mel spectrogram as a picture, low frequencies at the bottom."""
        self._write(step, lambda summary: summary.image(name, mel_picture(mel_TM)[None]))

    def audio(self, name: str, wave_S: np.ndarray[Any, Any], sample_rate: int, step: int) -> None:
        wave_1S1 = np.asarray(wave_S, np.float32)[None, :, None]
        self._write(step, lambda summary: summary.audio(name, wave_1S1, sample_rate))

    def close(self) -> None:
        if self._writer is not None:
            with self._or_said():
                self._writer.close()
            self._writer = None

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, step: int, write: Callable[[Any], None]) -> None:
        if self._failed:
            return
        with self._or_said():
            # tf.summary's scalar, image and audio live in the tensorboard package.
            if importlib.util.find_spec("tensorboard") is None:
                raise MissingDependencyError("TensorBoard is not installed", hint="pip install tensorboard")
            import tensorflow as tf

            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self._log_dir))
            with self._writer.as_default(step=np.int64(step)):
                write(tf.summary)

    @contextmanager
    def _or_said(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            self._failed = True
            logger.warning("%s is not written: %s", self._log_dir, error)


def event_scalars(event: StepEvent | ValidationEvent | WindowEvent) -> dict[str, float]:
    """The numbers of an event by their TensorBoard names, grouped by stage: each stage counts its steps from 1."""
    if isinstance(event, WindowEvent):
        found = {f"{event.stage}_{name}": value for name, value in _window_scalars(event.figures).items()}
    else:
        group = event.stage if isinstance(event, StepEvent) else f"{event.stage}_validation"
        found = {f"{group}/{name}": value for name, value in {"loss": event.loss, **event.numbers}.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def _window_scalars(window: WindowFigures) -> dict[str, float | None]:
    busy = {f"busy/{device.strip('/').replace(':', '_')}": share for device, share in window.device_busy.items()}
    return {
        "pipeline/stall_share": window.stall_share,
        "pipeline/buffer_depth": window.buffer_depth,
        "pipeline/efficiency": window.efficiency,
        "pipeline/oscillation": window.oscillation,
        "pipeline/padding_share": window.padding_share,
        "speed/audio_seconds_per_s": window.audio_seconds_per_s,
        "speed/step_ms": window.step_ms,
        **busy,
    }


def mel_picture(mel_TM: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A mel as RGB bytes [M, T, 3] on a perceptual ramp from dark blue over teal to yellow."""
    mel = np.asarray(mel_TM, np.float32).T[::-1]
    low, high = float(mel.min()), float(mel.max())
    level = (mel - low) / (high - low) if high > low else np.zeros_like(mel)
    stops = np.linspace(0, 1, 5)
    ramp = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float32)
    return np.stack([np.interp(level, stops, ramp[:, channel]) for channel in range(3)], -1).astype(np.uint8)
