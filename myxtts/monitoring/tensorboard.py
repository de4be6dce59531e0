"""A run in TensorBoard: scalars from its events, and mels and audio on request.

TensorFlow is imported and the files are made with the first thing written, after devices are configured.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.errors import MissingDependencyError
from myxtts.monitoring.events import Event
from myxtts.monitoring.figures import WindowFigures


class TensorBoardWriter:
    """Writes a run's TensorBoard files into `log_dir`."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._writer: Any = None

    def on_event(self, event: Event) -> None:
        """A subscriber of `EventLog`: what is a number becomes a scalar."""
        if event["event"] in ("step", "validation", "window"):
            self.scalars(event_scalars(event), event["step"])

    def scalars(self, values: dict[str, float], step: int) -> None:
        tf = self._open()
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def mel(self, name: str, mel_TM: np.ndarray[Any, Any], step: int) -> None:
        """A mel spectrogram as a picture, low frequencies at the bottom."""
        tf = self._open()
        with self._writer.as_default(step=step):
            tf.summary.image(name, mel_picture(mel_TM)[None])

    def audio(self, name: str, wave_S: np.ndarray[Any, Any], sample_rate: int, step: int) -> None:
        tf = self._open()
        with self._writer.as_default(step=step):
            tf.summary.audio(name, np.asarray(wave_S, np.float32)[None, :, None], sample_rate)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> Any:
        # tf.summary's scalar, image and audio live in the tensorboard package.
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingDependencyError(
                "TensorBoard is not installed, and this run writes its files", hint="pip install tensorboard"
            )
        import tensorflow as tf

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._log_dir))
        return tf


def event_scalars(event: Event) -> dict[str, float]:
    """The numbers of an event, by the name that they have in TensorBoard."""
    kind = event["event"]
    if kind == "window":
        window = WindowFigures.from_event(event)
        figures = {
            "pipeline/stall_share": window.stall_share,
            "pipeline/buffer_depth": window.buffer_depth,
            "pipeline/efficiency": window.efficiency,
            "pipeline/oscillation": window.oscillation,
            "pipeline/padding_share": window.padding_share,
            "speed/audio_seconds_per_s": window.audio_seconds_per_s,
            "speed/step_ms": window.step_ms,
        } | {f"busy/{device.strip('/').replace(':', '_')}": share for device, share in window.device_busy.items()}
    else:
        group = event["stage"] if kind == "step" else f"{event['stage']}_validation"
        figures = {
            f"{group}/{name}": value
            for name, value in event.items()
            if name not in ("event", "time", "stage", "step") and isinstance(value, (int, float))
        }
    return {name: float(value) for name, value in figures.items() if value is not None}


def mel_picture(mel_TM: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A mel as RGB bytes [M, T, 3] on a perceptual ramp from dark blue over teal to yellow."""
    mel = np.asarray(mel_TM, np.float32).T[::-1]
    low, high = float(mel.min()), float(mel.max())
    level = (mel - low) / (high - low) if high > low else np.zeros_like(mel)
    stops = np.linspace(0, 1, 5)
    ramp = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float32)
    return np.stack([np.interp(level, stops, ramp[:, channel]) for channel in range(3)], -1).astype(np.uint8)
