"""Samples while training: of the weights as they are, also after one that failed, and in TensorBoard too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.data.records import ClipRecord
from myxtts.monitoring.events import EventLog
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.training.samples import SampleMaker
from tests.processes import run_script
from tests.small_model import SIZES

SCRIPT = """
from pathlib import Path
import numpy as np
from myxtts.config.config import XTTSConfig
from myxtts.data.records import ClipRecord
from myxtts.monitoring.events import EventLog
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training.samples import SampleMaker
from myxtts.training.trainer import XTTSTrainer

folder = Path({folder!r})
tokenizer = train_tokenizer("phonemes", [])
trainer = XTTSTrainer(XTTSConfig(model_size="tiny", text_vocab=tokenizer.size, **{sizes}))
wave = np.random.default_rng(0).integers(-4000, 4000, 44100).astype(np.int16)
clip = ClipRecord(wave, np.array([4], np.int32), "a", "?!", "anna", "en")
maker = SampleMaker(trainer, [clip], [], tokenizer, folder / "samples", EventLog(folder / "events.jsonl"), None)
manifest = VoiceManifest(parts=("dvae", "conditioning", "gpt"))

maker.make("gpt", 1, manifest)
encoded = maker._synthesizer.latents([maker._reference(clip)])
for weight in trainer.model.conditioning.trainable_variables:
    weight.assign(weight + 0.1)
maker.make("gpt", 2, manifest)
encoded_anew = maker._synthesizer.latents([maker._reference(clip)])

assert not (folder / "samples").exists()
assert not np.allclose(encoded.latents_LD, encoded_anew.latents_LD)
print("anew")
"""


def test_a_sample_that_failed_leaves_nothing_of_older_weights_behind(tmp_path: Path) -> None:
    script = SCRIPT.format(folder=str(tmp_path), sizes=SIZES)

    assert run_script(script).strip().endswith("anew")


ON_THE_BOARD = """
from pathlib import Path
import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
from myxtts.audio.io import read_audio
from myxtts.audio.mel import frame_count
from myxtts.config.config import XTTSConfig
from myxtts.data.records import ClipRecord
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.tensorboard import TensorBoardWriter
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.training.samples import SampleMaker
from myxtts.training.trainer import XTTSTrainer

folder = Path({folder!r})
trainer = XTTSTrainer(XTTSConfig(model_size="tiny", **{sizes}))
wave = np.random.default_rng(0).integers(-4000, 4000, 44100).astype(np.int16)
clip = ClipRecord(wave, np.array([4], np.int32), "a", "?!", "anna", "en")
with TensorBoardWriter(folder / "board") as board:
    maker = SampleMaker(trainer, [clip], [], None, folder / "samples", EventLog(folder / "events.jsonl"), board)
    maker.make("codec", 7, VoiceManifest(parts=("dvae",)))

written = read_audio(folder / "samples" / "codec-0000007-1.wav")
seen = EventAccumulator(str(folder / "board"), size_guidance={{"tensors": 0}})
seen.Reload()
assert sorted(seen.Tags()["tensors"]) == ["codec/mel_1", "codec/sample_1"], seen.Tags()
(mel,) = seen.Tensors("codec/mel_1")
width, height, _ = tensor_util.make_ndarray(mel.tensor_proto)
assert (mel.step, int(width), int(height)) == (7, int(frame_count(len(written))), 80)
print("seen")
"""


def test_a_sample_has_audio_and_a_mel_in_tensorboard(tmp_path: Path) -> None:
    script = ON_THE_BOARD.format(folder=str(tmp_path), sizes=SIZES)

    assert run_script(script).strip().endswith("seen")


def test_a_sample_that_fails_in_a_way_nobody_foresaw_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clip = ClipRecord(np.zeros(10, np.int16), np.array([4], np.int32), "a", "?!", "anna", "en")
    broken: Any = object()
    maker = SampleMaker(broken, [clip], [], None, tmp_path / "samples", EventLog(tmp_path / "events.jsonl"), None)

    maker.make("codec", 7, VoiceManifest())

    assert "no sample of codec at step 7: AttributeError" in caplog.text
