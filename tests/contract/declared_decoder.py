"""A decoder with a part and a stage of its own, none of which the package knows; and a process that trains and speaks.

python -m tests.contract.declared_decoder CORPUS OUT STEPS [STAGE]
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.audio.mel import N_MELS, SAMPLE_RATE, MelSpectrogram
from myxtts.config.config import XTTSConfig
from myxtts.config.parts import DECODERS, Decoder
from myxtts.config.presets import MODEL_SIZES
from myxtts.models.parts import PARTS
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.decoding import MAKERS
from myxtts.synthesis.opening import open_voice
from myxtts.training.stages import STAGES
from myxtts.training.stages.spec import BatchFeatures, StageRecipe, StageSpec
from myxtts.training.stages.stage import LossTerm, Objective, StageContext, TrainingStage
from tests.small_model import SIZES


class Tones(keras.layers.Layer):  # type: ignore[misc]
    """One loudness for each mel channel."""

    def __init__(self, config: Any, **options: Any) -> None:
        super().__init__(**{"name": "tones", **options})

    def build(self, input_shape: Any = None) -> None:
        self.loudness_M = self.add_weight(name="loudness", shape=(N_MELS,), initializer="zeros")
        self.built = True


class TuningStage(TrainingStage):
    """Learns the mean mel of the corpus."""

    name = "tuning"

    def __init__(self, tones: Tones) -> None:
        self._tones, self._mel = tones, MelSpectrogram()

    @property
    def layers(self) -> dict[str, Any]:
        return {"tones": self._tones}

    def process(self, host_batch: Any) -> Any:
        mel_BTM, lengths_B = self._mel(host_batch["wave"], host_batch["wave_lengths"])
        return {"mel": mel_BTM, "mel_lengths": lengths_B}

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Any:
        return {"mel": mel, "mel_lengths": mel_lengths}

    def counts(self, batch: Any) -> dict[str, Any]:
        return {"distance": tf.cast(tf.reduce_sum(batch["mel_lengths"]), tf.float32)}

    def objective(self, batch: Any, *, seed: Any, step: Any) -> Objective:
        distance = tf.reduce_mean((batch["mel"] - self._tones.loudness_M) ** 2)
        return Objective({"distance": LossTerm(distance)}, {}, {})


class TonesDecoder:
    """As many samples of a tone as the codes stand for."""

    sample_rate, name = SAMPLE_RATE, "tones"

    def decode(self, made: Any, text_tokens: Any, speaker_V: Any, speed: float) -> Any:
        return np.sin(np.arange(1024 * len(made.codes_N)) / 10).astype(np.float32)

    def spoken_mel(self, made: Any, text_tokens: Any, speaker_V: Any) -> None:
        return None

    def streaming(self, speaker_V: Any) -> None:
        return None

    def set_postfilter(self, gains: Any) -> None:
        return None


def build(context: StageContext) -> TrainingStage:
    return TuningStage(context.model.tones)


def declare() -> None:
    """A line in each table. Not on import: the stage's module is imported once more when it is built."""
    DECODERS["tones"] = Decoder(name="tones", parts=("tones",))
    PARTS["tones"] = Tones
    MAKERS["tones"] = lambda parts, gains, device: TonesDecoder()
    STAGES.append(
        StageSpec(
            name="tuning",
            module="tests.contract.declared_decoder",
            decoder="tones",
            requires=("dvae", "conditioning", "gpt"),
            learns=("tones",),
            features=BatchFeatures(text=False),
            recipes=dict.fromkeys(MODEL_SIZES, StageRecipe(steps=10, batch_size=2, learning_rate=0.1)),
        )
    )


def main(corpus: str, out: str, steps: str, stage: str | None = None) -> None:
    from myxtts.monitoring.log import setup_logging
    from myxtts.training.run import run_training

    declare()
    config = XTTSConfig(
        model_size="tiny",
        decoder="tones",
        train_data=corpus,
        run_dir=f"{out}/run",
        cache_dir=f"{out}/cache",
        text_frontend="characters",
        stage=stage,
        max_steps=int(steps),
        batch_size=2,
        log_every=1,
        samples=1,
        validate_every=2,
        alignment_weight=0.0,
        concatenation=0.0,
        ctc_loss_weight=0.0,
        **SIZES,
    )
    setup_logging()
    run_training(
        config, plan_devices(DeviceRequest.from_config(config), find_inventory(0)), fresh=False, live_console=False
    )
    speech = open_voice(f"{out}/run").speak("hello")
    assert speech.report.decoder == "tones", speech.report


if __name__ == "__main__":
    main(*sys.argv[1:])
