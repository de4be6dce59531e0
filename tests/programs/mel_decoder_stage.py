"""The mel decoder learns two clips, for `tests/integration/test_mel_decoder_stage.py`: what was seen, as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.models.mel_decoder import SpokenText
from myxtts.runtime.seeds import seed_everything
from myxtts.synthesis.decoding import TrainedMelDecoder
from myxtts.synthesis.speech_model import CheckedCodes
from myxtts.training.checkpoint import Checkpoint
from myxtts.training.stages import parts_after, stage_named
from myxtts.training.trainer import XTTSTrainer
from tests.small_model import SIZES


def main() -> None:
    config = XTTSConfig(model_size="tiny", max_steps=60, learning_rate=4e-3, **SIZES)
    seed_everything(3)
    time_s = np.arange(22050) / 22050

    def buzz(hz: Any) -> Any:
        return sum(6000 / k * np.sin(2 * np.pi * hz * k * time_s) for k in range(1, 11)) * (
            0.6 + 0.4 * np.sin(20 * time_s)
        )

    # Two texts, each with its own sound.
    wave = np.stack([buzz(140), 0.1 * buzz(260)]).astype("int16")
    lengths = np.array([22050, 18000], "int32")
    host = {
        "wave": wave,
        "wave_lengths": lengths,
        "draw": np.array([0.3, 0.9], "float32"),
        "text": np.stack([np.arange(4, 12), np.arange(20, 28)]).astype("int32"),
        "text_lengths": np.array([8, 8], "int32"),
        "reference": wave[::-1].copy(),
        "reference_lengths": lengths[::-1].copy(),
        "alignment": np.repeat(np.arange(8), 3)[None, :22].repeat(2, 0).astype("int32"),
    }
    trainer = XTTSTrainer(config)
    model = trainer.model
    model.dvae.set_mel_stats(np.full(80, -6.0, "float32"), np.full(80, 3.0, "float32"))
    trainer.start_stage("decoder")
    stage = trainer.current_stage()
    stage.initialise(0)
    batch = stage.process(host)
    again = stage.process(host)
    clean = stage.process(host | {"draw": np.zeros(2, "float32")})
    codes, code_lengths = model.dvae.encode(clean["mel"], clean["mel_lengths"])
    text = SpokenText(host["text"], host["text_lengths"], host["alignment"][:, : codes.shape[1]])
    first = model.mel_decoder(clean["vectors"], clean["latents"], code_lengths, text).mel_BTM
    as_dvae = model.dvae.decode(codes, code_lengths)
    own = [
        float(np.mean(np.any(batch["vectors"].numpy()[row, :n] != clean["vectors"].numpy()[row, :n], axis=-1)))
        for row, n in enumerate(code_lengths.numpy())
    ]

    # What the first clip sounds like with the latents of the second, and with its text.
    def said(latents: Any, row: Any) -> Any:
        one = SpokenText(*(rows[row : row + 1] for rows in text))
        given = clean["vectors"][:1], clean["latents"][latents : latents + 1], code_lengths[:1]
        return model.mel_decoder(*given, one).mel_BTM

    def apart() -> Any:
        return [float(tf.reduce_max(tf.abs(said(0, 0) - other))) for other in (said(1, 0), said(0, 1))]

    told_apart = [apart()]
    others = [np.array(w.numpy()) for part in (model.dvae, model.conditioning, model.gpt) for w in part.weights]

    def weights(group: Any) -> Any:
        return [np.array(v.numpy()) for v in stage.parameter_groups[group]]

    untaught = weights("discriminators")
    steps = [trainer.learn([trainer._whole_batch(batch)]) for _ in range(20)]
    alone = all(np.array_equal(a, b) for a, b in zip(untaught, weights("discriminators"), strict=True))
    steps += [trainer.learn([trainer._whole_batch(batch)]) for _ in range(40)]
    evaluated = float(
        np.mean([not np.array_equal(a, b) for a, b in zip(untaught, weights("discriminators"), strict=True)])
    )
    losses = [step.figures["l1"] for step in steps]
    held_out = trainer.evaluate([trainer._whole_batch(batch)])
    told_apart.append(apart())
    unchanged = all(
        np.array_equal(a, w.numpy())
        for a, w in zip(
            others, [w for p in (model.dvae, model.conditioning, model.gpt) for w in p.weights], strict=True
        )
    )
    kept = Checkpoint(step=trainer.step_number, arrays=trainer.arrays(), state={})
    straight = [trainer.learn([trainer._whole_batch(batch)]).loss for _ in range(2)]
    trainer.restore(kept)
    resumed = [trainer.learn([trainer._whole_batch(batch)]).loss for _ in range(2)]
    documented = trainer.train_step(host["text"], clean["mel"], host["text_lengths"], clean["mel_lengths"])

    decoder = TrainedMelDecoder(model.mel_decoder, model.dvae)
    count = int(code_lengths[0])

    def wave_with(spoken_token: Any) -> Any:
        made = (codes.numpy()[0, :count], clean["latents"].numpy()[0, :count], spoken_token)
        checked = CheckedCodes(*made, fault=None, attempts=1, cut_codes=0, note=None)
        return decoder.decode(checked, list(range(4, 12)), None, 1.0)

    # The last code is of the text's stop token, which stands behind the text.
    wave = wave_with(np.append(host["alignment"][0, : count - 1], 8))
    without = wave_with(np.zeros(0, "int32"))
    spec = stage_named("decoder", config.model)
    print(
        json.dumps(
            {
                "as_dvae": float(np.abs(first - as_dvae).max()),
                "own": own,
                "losses": [losses[0], losses[-1]],
                "unchanged": unchanged,
                "same": all(np.array_equal(batch[name], again[name]) for name in batch),
                "told_apart": told_apart,
                "straight": straight,
                "resumed": resumed,
                "documented": sorted(documented),
                "seconds": len(wave) / 22050,
                "loud": float(np.abs(wave).max()),
                "text_matters": float(np.abs(wave - without).max()),
                "published": parts_after(spec, config.model),
                "alone": alone,
                "evaluated": evaluated,
                "held_out": sorted(held_out),
                "terms": [sorted(step.figures) for step in (steps[0], steps[-1])],
                "in_checkpoint": any(name.startswith("model/discriminators/") for name in kept.arrays),
            }
        )
    )
