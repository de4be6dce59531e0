"""HiFi-GAN learns a clip, for `tests/integration/test_decoder_stage.py`: what was seen, as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.errors import TrainingError
from myxtts.models.hifigan import samples_of
from myxtts.runtime.seeds import seed_everything
from myxtts.training.checkpoint import Checkpoint
from myxtts.training.stages import parts_after, stage_named
from myxtts.training.stages.hifigan import segment_starts
from myxtts.training.trainer import XTTSTrainer
from tests.small_model import SIZES


def main() -> None:
    MEL_ONLY = 16
    config = XTTSConfig(
        model_size="tiny",
        stage="decoder",
        max_steps=40,
        discriminator_start=MEL_ONLY,
        learning_rate=4e-3,
        attend_text_stop=False,
        decoder="hifigan",
        **SIZES,
    )
    seed_everything(3)
    time_s = np.arange(22050) / 22050
    buzz = sum(6000 / k * np.sin(2 * np.pi * 140 * k * time_s) for k in range(1, 11)) * (
        0.6 + 0.4 * np.sin(20 * time_s)
    )
    wave = buzz[None].astype("int16")
    host = {
        "wave": wave,
        "wave_lengths": np.array([wave.shape[1]], "int32"),
        "draw": np.array([0.3], "float32"),
        "text": np.arange(4, 12, dtype="int32")[None],
        "text_lengths": np.array([8], "int32"),
        "reference": wave,
        "reference_lengths": np.array([wave.shape[1]], "int32"),
    }

    trainer = XTTSTrainer(config)
    trainer.pretrained_parts = frozenset({"speaker_encoder"})
    trainer.start_stage("decoder")
    given = trainer.current_stage().process(host)
    frozen = {
        "given": sorted(given),
        "speaker": float(np.linalg.norm(given["speaker"].numpy())),
        "learns": any("speaker_encoder" in v.path for v in trainer.current_stage().trainable_variables),
    }

    trainer.pretrained_parts = frozenset()
    trainer.start_stage("decoder")
    stage: Any = trainer.current_stage()
    batch = stage.process(host)
    hushed = host | {"reference_lengths": host["reference_lengths"] // 3}
    codes, code_lengths = trainer.model.dvae.encode(*stage._mel(host["wave"], host["wave_lengths"]))
    voice = trainer.model.conditioning(*stage._conditioning_mel(host["reference"], host["reference_lengths"]))
    start = int(segment_starts(host["wave_lengths"], host["draw"], batch["latents"].shape[1])[0])

    def off_by(attend_stop: Any) -> Any:
        passed = (
            trainer.model.gpt(voice, host["text"], host["text_lengths"], codes, code_lengths, attend_stop=attend_stop)
            .latents_BTD[0, start : int(code_lengths[0])]
            .numpy()
        )
        count = min(len(passed), batch["latents"].shape[1])
        return float(np.abs(passed[:count] - batch["latents"][0, :count].numpy()).max())

    quiet = float(np.mean(np.abs(stage.process(hushed)["speaker_wave"].numpy()[:, -8000:]) < 1e-3))

    def weights(group: Any) -> Any:
        return [np.array(v.numpy()) for v in stage.parameter_groups[group]]

    def moved(group: Any, before: Any) -> Any:
        return float(np.mean([not np.array_equal(a, b) for a, b in zip(before, weights(group), strict=True)]))

    def learn() -> Any:
        return trainer.learn([trainer._whole_batch(batch)])

    before = {group: weights(group) for group in stage.parameter_groups}
    mel = [learn().figures["mel"] for _ in range(MEL_ONLY)]
    warm = {group: moved(group, before[group]) for group in stage.parameter_groups}
    adversarial = learn()
    after = {group: moved(group, before[group]) for group in stage.parameter_groups}
    norms = [float(np.max(np.abs(w.numpy()))) for w in stage.speaker_encoder.weights if w.path.endswith("moving_mean")]
    held_out = trainer.evaluate([trainer._whole_batch(batch)])

    kept = Checkpoint(step=trainer.step_number, arrays=trainer.arrays(), state={})
    straight = [learn().loss for _ in range(2)]
    trainer.restore(kept)
    again = [learn().loss for _ in range(2)]
    try:
        trainer.train_step(*[np.zeros([1, 4, 80])] * 4)
        refused = ""
    except TrainingError as error:
        refused = str(error)

    ids = {group: {id(v) for v in variables} for group, variables in stage.parameter_groups.items()}
    spec = stage_named("decoder", config.model)
    print(
        json.dumps(
            {
                "samples": batch["wave"].shape[1] == samples_of(batch["latents"].shape[1]),
                "norms": min(norms),
                "mel": [mel[0], mel[-1]],
                "warm": warm,
                "quiet": quiet,
                "after": after,
                "terms": sorted(adversarial.figures),
                "loss": adversarial.loss,
                "figures": adversarial.figures,
                "shared": len(ids["generator"] & ids["discriminators"]),
                "straight": straight,
                "again": again,
                "refused": refused,
                "frozen": frozen,
                "latents_off": [off_by(True), off_by(None)],
                "held_out": held_out,
                "published": parts_after(spec, config.model),
                "in_checkpoint": any(name.startswith("model/discriminators/") for name in kept.arrays),
            }
        )
    )
