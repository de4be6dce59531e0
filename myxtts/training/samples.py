"""Samples while training: the same few held-out clips at each validation, spoken (gpt) or through the codec and back.

A sample that fails is a warning and never the end of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.audio.io import from_int16, resampled, write_audio
from myxtts.audio.mel import SAMPLE_RATE, MelSpectrogram
from myxtts.config.training import Stage
from myxtts.data.records import ClipRecord
from myxtts.errors import MyXTTSError
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.tensorboard import TensorBoardWriter
from myxtts.synthesis.decoding import CodecDecoder
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import Speaker
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.tensorflow_model import TensorFlowModel
from myxtts.synthesis.voice import Voice, missing_to_speak
from myxtts.training.trainer import XTTSTrainer

logger = logging.getLogger(__name__)

ONE_ATTEMPT = HallucinationChecks(retries=0)
"""Time counts more than the best attempt."""


class SampleMaker:
    """Writes `samples/STAGE-STEP-N.wav`, an event for each, and its audio and mel into TensorBoard."""

    def __init__(
        self,
        trainer: XTTSTrainer,
        clips: Sequence[ClipRecord],
        speakers: Sequence[Speaker],
        tokenizer: Any,
        folder: Path,
        events: EventLog,
        board: TensorBoardWriter | None,
    ) -> None:
        self._trainer, self._clips, self._folder = trainer, list(clips), folder
        self._events, self._board = events, board
        self._speakers = {speaker.name: speaker for speaker in speakers}
        self._tokenizer = tokenizer
        self._synthesizer: Synthesizer | None = None
        self._model: TensorFlowModel | None = None
        self._codec: CodecDecoder | None = None
        self._mel = MelSpectrogram()

    def make(self, stage: Stage, step: int, manifest: VoiceManifest) -> None:
        """A sample of every clip; `manifest` is that of the voice which the stage would publish now."""
        for number, clip in enumerate(self._clips):
            try:
                wave, rate = self._sample(clip, manifest)
                name = f"{stage}-{step:07d}-{number + 1}"
                path = self._folder / f"{name}.wav"
                self._folder.mkdir(parents=True, exist_ok=True)
                write_audio(path, wave, rate)
                relative = str(path.relative_to(self._folder.parent))
                self._events.write("sample", stage=stage, step=step, path=relative, text=clip.text)
                if self._board is not None:
                    self._board.audio(f"{stage}/sample_{number + 1}", wave, rate, step)
                    self._board.mel(f"{stage}/mel_{number + 1}", self._mel_of(wave, rate), step)
            except Exception as error:  # whatever is wrong with a sample, training goes on
                logger.warning("no sample of %s at step %d: %s", stage, step, _problem(error))
                logger.debug("the error of the sample", exc_info=error)

    def _sample(self, clip: ClipRecord, manifest: VoiceManifest) -> tuple[np.ndarray, int]:
        if missing_to_speak(manifest.parts):
            if self._codec is None:
                self._codec = CodecDecoder(self._trainer.model.dvae)
            self._codec.set_postfilter(manifest.postfilter.get("dvae"))
            with tf.device(self._trainer.model_device):
                return self._codec.round_trip(from_int16(clip.wave)), SAMPLE_RATE
        if self._model is None or self._synthesizer is None or self._synthesizer.voice.manifest.parts != manifest.parts:
            voice = Voice(
                manifest=manifest,
                config=self._trainer.config,
                tokenizer=self._tokenizer,
                sha256="",
                speakers=self._speakers,
            )
            self._model = TensorFlowModel(voice, self._trainer.model, device=self._trainer.model_device)
            self._synthesizer = Synthesizer(voice, self._model)
        self._model.set_postfilter(manifest.postfilter)
        self._synthesizer.forget_references()
        reference = [self._reference(clip)]
        speech = self._synthesizer.speak(clip.text, reference=reference, language=clip.language, checks=ONE_ATTEMPT)
        return speech.wave, speech.sample_rate

    def _mel_of(self, wave: np.ndarray, rate: int) -> np.ndarray:
        wave_1S = resampled(wave, rate, SAMPLE_RATE)[None]
        return np.asarray(self._mel(wave_1S, np.array([wave_1S.shape[1]], np.int32))[0][0])

    def _reference(self, clip: ClipRecord) -> np.ndarray:
        speaker = self._speakers.get(clip.speaker)
        wave = clip.wave if speaker is None else speaker.wave
        return from_int16(wave)


def _problem(error: Exception) -> str:
    """In one line; TensorFlow's errors have many."""
    if isinstance(error, MyXTTSError):
        return error.problem
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
