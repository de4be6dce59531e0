"""Everything that learns and speaks, traced in 16 bits, for `tests/integration/test_sixteen_bits.py`: types as JSON."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.models import layers
from myxtts.models.aligner import CTCNetwork, Labelled, fit, seeded
from myxtts.models.hifigan import samples_of
from myxtts.models.xtts import XTTS
from myxtts.synthesis.decoding import CodecDecoder
from myxtts.synthesis.generation import Generator, new_request
from myxtts.synthesis.speech_model import TextBatch
from myxtts.training.stages import MEL_DECODER
from myxtts.training.stages.stage import StageContext
from myxtts.training.trainer import XTTSTrainer
from tests.small_model import SIZES


def main(policy: str) -> None:
    layers.refuse_half_precision_on_cpu = lambda compute_dtype, device: None
    small = {**SIZES, "gpt_layers": 2}
    config = XTTSConfig(model_size="tiny", decoder="hifigan", alignment_weight=1.0, **small)
    sizes = config.model
    keras.config.set_dtype_policy(policy)
    model = XTTS(sizes)
    trainer = XTTSTrainer(config, model)  # which sets the policy of this CPU
    keras.config.set_dtype_policy(policy)

    def traced(function: Any, *arguments: Any) -> Any:
        return tf.function(function, autograph=False).get_concrete_function(*arguments).structured_outputs

    seed, step = tf.constant([0, 0]), tf.constant(500, tf.int64)

    def terms_of(stage: Any, batch: Any) -> Any:
        terms = traced(lambda batch: stage.objective(batch, seed=seed, step=step).terms, batch)
        return sorted(terms), sorted({term.mean.dtype.name for term in terms.values()})

    wave = np.random.default_rng(0).integers(-4000, 4000, (2, 33000)).astype("int16")
    lengths = np.array([33000, 22050], "int32")
    host = {
        "wave": wave,
        "wave_lengths": lengths,
        "draw": np.array([0.2, 0.7], "float32"),
        "reference": wave,
        "reference_lengths": lengths,
        "text": np.full((2, 5), 7, "int32"),
        "text_lengths": np.array([5, 4], "int32"),
        "speaker": np.zeros(2, "int32"),
    }
    aligner = seeded(CTCNetwork(5), 0)
    labelled = Labelled(np.zeros((1, 40, 80), "float32"), np.array([40], "int32"), [np.array([1, 2], "int32")])
    seen: dict[str, Any] = {"aligner": fit(aligner, iter([labelled]), steps=1)}

    trainer.start_stage("codec")
    stage: Any = trainer.current_stage()
    stage.mel_loss.add_ctc_loss(aligner, 1.0)
    seen["codec"] = terms_of(stage, stage.process(host))

    trainer.start_stage("gpt")
    batch = trainer.current_stage().process(host)
    made = traced(
        trainer._distributed_gradients,
        {**batch, "alignment": tf.zeros_like(batch["codes"])},
        seed,
        step,
        tf.constant(1.0),
    )
    seen["gpt"] = sorted(made["figures"]), sorted({gradient.dtype.name for gradient in made["gradients"]})

    trainer.start_stage("decoder")
    stage = trainer.current_stage()
    latents = stage._encode.get_concrete_function().structured_outputs
    stage.begin_step(stage.discriminator_start)
    count = stage.settings.segment_latents
    batch = {
        "latents": tf.zeros([1, count, sizes.gpt_width]),
        "wave": tf.zeros([1, samples_of(count)]),
        "speaker_wave": tf.zeros([1, 16000]),
    }
    seen["decoder"] = terms_of(stage, batch)

    mels = XTTSConfig(model_size="tiny", decoder="mel", discriminator_start=0, **small)
    stage = MEL_DECODER.build(
        StageContext(
            config=mels, model=XTTS(mels.model), plan=trainer.plan, data_device=trainer.plan.producer_device, steps=1
        )
    )
    stage.build()
    batch = {
        "vectors": tf.zeros([1, 4, sizes.dvae_code_width]),
        "latents": tf.zeros([1, 4, sizes.gpt_width]),
        "code_lengths": [4],
        "mel": tf.zeros([1, 16, 80]),
        "mel_lengths": [15],
        "text": [[5, 6]],
        "text_lengths": [2],
        "alignment": [[0, 0, 1, 1]],
    }
    seen["mels"] = terms_of(stage, {name: tf.convert_to_tensor(value) for name, value in batch.items()})

    generator = Generator(model.gpt, alignment_heads=((1, 0),))
    voice = np.zeros((1, sizes.conditioning_latents, sizes.gpt_width), "float32")
    inputs, request = new_request(model.gpt, TextBatch(voice, [[5, 6, 7]], [3], max_codes=9), 0)
    spoken = generator._whole.get_concrete_function(*inputs, request).structured_outputs
    shapes = tf.TensorSpec([1, None], tf.int32), tf.TensorSpec([1, 0])
    mel = CodecDecoder(model.dvae)._decode.get_concrete_function(*shapes).structured_outputs
    seen["made"] = [made.dtype.name for made in (latents, spoken[3], mel)]
    seen["computes"] = {
        name: layer.compute_dtype
        for name, layer in {
            "gpt": model.gpt.blocks[0].up,
            "conditioning": model.conditioning.project,
            "hifigan": model.hifigan.into,
            "codes": model.dvae.encoder.blocks[0].conv_1,
            "mels": model.dvae.decoder.into,
            "samples": model.hifigan.out,
            "speaker": model.speaker_encoder.pooling.score,
        }.items()
    }
    print(json.dumps(seen))
