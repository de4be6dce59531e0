"""Our side of `bench.model`: one measurement in a process of its own, printed as one JSON object."""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from myxtts.runtime.backend import import_tensorflow

tf = import_tensorflow()  # first, as every command does: Keras would load scikit-learn, which came with librosa

from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.models.conditioning import Conditioning
from myxtts.models.gpt import GPT, gpt_losses
from myxtts.models.hifigan import HiFiGAN, samples_of
from myxtts.models.speaker_encoder import SAMPLE_RATE, SpeakerEncoder
from myxtts.synthesis.generation import Generator
from myxtts.synthesis.speech_model import TextBatch
from myxtts.training.optim import AdamW
from myxtts.training.stages.spec import StageRecipe

TEXT_TOKENS, CODES, MEL_FRAMES, CLIPS = 80, 200, 517, 4
DECODED_LATENTS = 43
REFERENCE_S = 9.7
RANDOM = np.random.default_rng(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", required=True)
    parser.add_argument("--what", required=True, choices=list(RUNS))
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    imports_mb = peak_mb()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    figure = RUNS[arguments.what](ModelConfig(model_size=arguments.size), arguments)
    print(json.dumps({"figure": figure, "peak_mb": peak_mb(), "imports_mb": imports_mb}))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def built(layer: Any) -> Any:
    layer.build()
    return layer


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=shape).astype(np.float32))


def integers(high: int, *shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.integers(4, high, shape).astype(np.int32))


def median_cpu_s(run: Callable[[], object], steps: int) -> float:
    """CPU-seconds of one run; the first compiles and does not count."""
    seconds = []
    for _ in range(steps + 2):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[2:])


def train(config: ModelConfig, arguments: argparse.Namespace) -> float:
    gpt, conditioner = built(GPT(config)), built(Conditioning(config))
    weights = gpt.trainable_weights + conditioner.trainable_weights
    optimiser = AdamW(StageRecipe(steps=100, learning_rate=1e-4), weights, tf.distribute.get_strategy())
    batch = (integers(6000, CLIPS, TEXT_TOKENS), tf.fill([CLIPS], TEXT_TOKENS))
    batch += (integers(config.audio_codes, CLIPS, CODES), tf.fill([CLIPS], CODES))
    mel = normal(CLIPS, MEL_FRAMES, 80)

    @tf.function(autograph=False)  # as the trainer does
    def step(seed: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = gpt_losses(gpt, gpt(conditioner(mel), *batch, seed=seed), *batch)
        gradients = tape.gradient(losses.total, [weight.value for weight in weights])
        clipped, _ = tf.clip_by_global_norm([tf.convert_to_tensor(gradient) for gradient in gradients], 1.0)
        optimiser.apply(clipped, factors)
        return losses.total

    counter = iter(range(10_000))

    def run() -> None:
        number = next(counter)
        step(tf.constant([0, number]), optimiser.factors(number)).numpy()

    return median_cpu_s(run, arguments.steps)


def generate(config: ModelConfig, arguments: argparse.Namespace) -> float:
    generator = Generator(built(GPT(config)))
    latents, text = normal(1, config.conditioning_latents, config.gpt_width), integers(6000, 1, TEXT_TOKENS)
    sampling = Sampling(temperature=0.75, top_k=50, top_p=0.85, repetition_penalty=10.0)

    def speak() -> None:
        texts = TextBatch(latents, text, [TEXT_TOKENS], sampling, max_codes=arguments.tokens)
        made = generator.generate(texts, min_codes=arguments.tokens)
        assert made.lengths_B[0] == arguments.tokens

    return arguments.tokens / median_cpu_s(speak, arguments.steps)


def conditioning(config: ModelConfig, arguments: argparse.Namespace) -> float:
    layer, mel = built(Conditioning(config)), normal(1, MEL_FRAMES, 80)
    compiled = tf.function(lambda mel: layer(mel))
    return median_cpu_s(lambda: compiled(mel).numpy(), arguments.steps)


def speaker(config: ModelConfig, arguments: argparse.Namespace) -> float:
    layer, wave = built(SpeakerEncoder(config)), normal(1, int(REFERENCE_S * SAMPLE_RATE))
    compiled = tf.function(lambda wave: layer(wave))
    return median_cpu_s(lambda: compiled(wave).numpy(), arguments.steps)


def hifigan(config: ModelConfig, arguments: argparse.Namespace) -> float:
    """CPU-seconds for each second of 24 kHz audio."""
    decoder = built(HiFiGAN(config))
    latents, speaker = normal(1, DECODED_LATENTS, config.gpt_width), normal(1, config.speaker_width)
    compiled = tf.function(lambda latents, speaker: decoder(latents, speaker))
    seconds = samples_of(DECODED_LATENTS) / 24000
    return median_cpu_s(lambda: compiled(latents, speaker).numpy(), arguments.steps) / seconds


def big(config: ModelConfig, arguments: argparse.Namespace) -> dict[str, float]:
    """Build, one forward pass, 20 codes."""
    from myxtts.models.xtts import XTTS

    model = XTTS(config)
    mel = normal(1, MEL_FRAMES, 80)
    text, codes = integers(6000, 1, TEXT_TOKENS), integers(config.audio_codes, 1, CODES)
    lengths = tf.constant([TEXT_TOKENS]), tf.constant([CODES])
    start = time.process_time()
    tf.function(lambda: model(text, lengths[0], codes, lengths[1], mel).audio_logits_BTV)().numpy()
    forward = time.process_time() - start
    latents = tf.function(lambda mel: model.conditioning(mel))(mel)
    rates = []
    for _ in range(2):
        start = time.process_time()
        Generator(model.gpt).generate(TextBatch(latents, text, [TEXT_TOKENS], max_codes=20), min_codes=20)
        rates.append(20 / (time.process_time() - start))
    return {
        "parameters": sum(model.parameter_counts().values()),
        "forward_cpu_s": forward,
        "codes_per_cpu_s": rates[-1],
    }


RUNS = {
    "train": train,
    "generate": generate,
    "conditioning": conditioning,
    "speaker": speaker,
    "hifigan": hifigan,
    "big": big,
}
main()
