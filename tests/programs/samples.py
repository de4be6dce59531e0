"""Samples of a model in training: of the weights as they are, and in TensorBoard; what is wrong is an assertion."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.audio.io import read_audio
from myxtts.audio.mel import frame_count
from myxtts.config.config import XTTSConfig
from myxtts.data.records import ClipRecord
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.tensorboard import TensorBoardWriter
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training.samples import SampleMaker
from myxtts.training.trainer import XTTSTrainer
from tests.small_model import SIZES


def clip() -> ClipRecord:
    wave = np.random.default_rng(0).integers(-4000, 4000, 44100).astype(np.int16)
    return ClipRecord(wave, np.array([4], np.int32), "a", "?!", "anna", "en")


def after_one_that_failed(folder: Path) -> None:
    tokenizer = train_tokenizer("phonemes", [])
    trainer = XTTSTrainer(XTTSConfig(model_size="tiny", text_vocab=tokenizer.size, **SIZES))
    log = EventLog(folder / "events.jsonl")
    maker = SampleMaker(trainer, [clip()], [], tokenizer, folder / "samples", log, None)
    manifest = VoiceManifest(parts=("dvae", "conditioning", "gpt"))

    maker.make("gpt", 1, manifest)
    assert maker._synthesizer is not None
    encoded = maker._synthesizer.latents([maker._reference(clip())])
    for weight in trainer.model.conditioning.trainable_variables:
        weight.assign(weight + 0.1)
    maker.make("gpt", 2, manifest)
    encoded_anew = maker._synthesizer.latents([maker._reference(clip())])

    assert not (folder / "samples").exists()
    assert not np.allclose(encoded.latents_LD, encoded_anew.latents_LD)


def on_the_board(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    tokenizer = train_tokenizer("characters", [])
    trainer = XTTSTrainer(XTTSConfig(model_size="tiny", **SIZES))
    with TensorBoardWriter(folder / "board") as board:
        log = EventLog(folder / "events.jsonl")
        maker = SampleMaker(trainer, [clip()], [], tokenizer, folder / "samples", log, board)
        maker.make("codec", 7, VoiceManifest(parts=("dvae",)))

    written = read_audio(folder / "samples" / "codec-0000007-1.wav")
    seen = EventAccumulator(str(folder / "board"), size_guidance={"tensors": 0})
    seen.Reload()
    assert sorted(seen.Tags()["tensors"]) == ["codec/mel_1", "codec/sample_1"], seen.Tags()
    (mel,) = seen.Tensors("codec/mel_1")
    width, height, _ = tensor_util.make_ndarray(mel.tensor_proto)
    assert (mel.step, int(width), int(height)) == (7, int(frame_count(len(written))), 80)


def main(question: str, folder: str) -> None:
    {"after_one_that_failed": after_one_that_failed, "on_the_board": on_the_board}[question](Path(folder))
