"""What the kernel contract looks at, each in a process of its own: a whole dual run, and the steps of every stage.

The devices are simulated; models build what they would on GPUs. Steps are traced and not run: see `Recorder.dry`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.cli import train
from myxtts.config.config import XTTSConfig
from myxtts.pipeline import DeviceBatch, split_rows
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.kernels import stored_table
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.speech_model import TextBatch
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.tensorflow_model import TensorFlowModel
from myxtts.synthesis.voice import Voice
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training.stages import parts_after, stage_named
from myxtts.training.trainer import XTTSTrainer
from tests.kernel_contract import copies_inside, held_against, with_types
from tests.recorded_operations import Recorder
from tests.small_model import SIZES, size_flags

DATA, MODEL = "/CPU:1", "/CPU:2"
DUAL = {"data_gpu": 0, "model_gpu": 1, "simulate_gpus": 2}
REPLICATED: dict[str, dict[str, Any]] = {
    "mirrored": {"multi_gpu": True, "simulate_gpus": 2},
    "hybrid": {"data_gpu": 0, "model_gpu": (1, 2), "simulate_gpus": 3},
}
RUN_STEPS = 2

Seen = dict[str, Any]
"""What a case found, to be written as JSON."""


@contextmanager
def as_on_gpus(precision: str) -> Iterator[None]:
    """Models as they are on GPUs: nothing that is done for the sake of a CPU, and 16 bits where they are asked for."""
    on_gpus = {
        "on_cpu": lambda weight: False,
        "refuse_half_precision_on_cpu": lambda compute_dtype, device: None,
        "choose_precision": lambda mixed, plan, role="model": precision,
    }
    for module in [module for name, module in sys.modules.items() if name.startswith("myxtts.")]:
        for name, ours in on_gpus.items():
            if hasattr(module, name):
                setattr(module, name, ours)
    yield


def whole_run(corpus: str, folder: str) -> Seen:
    """Every stage as `myxtts train` runs it: aligner, pipeline, validation, samples and checkpoints."""
    recorder = Recorder()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in DUAL.items()]
    with as_on_gpus("float32"), recorder.watching():
        for stage in ("codec", "gpt", "decoder"):
            recorder.stage = stage
            steps = ["--max-steps", str(RUN_STEPS), "--discriminator-start", "0", "--validate-every", str(RUN_STEPS)]
            named = ["--train-data", corpus, "--cache-dir", f"{folder}/cache", "--run-dir", f"{folder}/run"]
            few = ["--batch-size", "2", "--samples", "1", "--buffer-size", "2", "--model-start-delay", "0"]
            tiny = ["--model-size", "tiny", *size_flags()]
            assert train.main([*named, "--stage", stage, *tiny, *steps, *few, *flags]) == 0
    return tell(recorder, samples=sorted(path.name for path in Path(folder, "run", "samples").iterdir()))


def steps(precision: str, level: str, *stages: str) -> Seen:
    """One step of each stage, its evaluation, and speaking with what it leaves."""
    recorder = Recorder(dry=True)
    with as_on_gpus(precision), recorder.watching():
        for stage in stages:
            recorder.stage = stage
            name, _, decoder = stage.partition(" ")
            options: dict[str, Any] = {"optimization_level": level, "mixed_precision": precision != "float32"}
            sizes = {**SIZES, "decoder": decoder or "mel", "pitch_predictor": True}
            trainer = XTTSTrainer(XTTSConfig(model_size="tiny", discriminator_start=0, **sizes, **DUAL, **options))
            one_step(trainer, name)
            if name != "codec" and not trainer.config.training.jit_compile:  # XLA compiles steps only
                speak(trainer, name)
    # To a trace the two kinds of 16 bits are the same.
    return tell(recorder, also=[("float16", "bfloat16")] if precision == "mixed_float16" else [])


def replicated(mode: str, *stages: str) -> Seen:
    """The same with the model on several devices, and two batches a step. The collectives are those of GPUs, which run
    them by NCCL where CPUs pass sums around a ring. A speaker encoder that came with a voice is frozen."""
    recorder = Recorder(dry=True)
    with as_on_gpus("float32"), recorder.watching():
        for stage in stages:
            recorder.stage = stage
            name, _, decoder = stage.partition(" ")
            sizes = {**SIZES, "decoder": decoder or "mel", "grad_accum": 2}
            trainer = XTTSTrainer(XTTSConfig(model_size="tiny", discriminator_start=0, **sizes, **REPLICATED[mode]))
            trainer.pretrained_parts = frozenset({"speaker_encoder"})
            one_step(trainer, name)
    devices = [role.name for role in trainer.plan.roles]
    return tell(recorder, devices=devices, replicas=len(trainer.plan.models))


def both_kinds_of_sixteen_bits() -> Seen:
    """Whether a trace in float16 tells what one in bfloat16 would."""
    seen = []
    for precision in ("mixed_float16", "mixed_bfloat16"):
        recorder = Recorder(dry=True)
        with as_on_gpus(precision), recorder.watching():
            one_step(XTTSTrainer(XTTSConfig(model_size="tiny", mixed_precision=True, **SIZES, **DUAL)), "gpt")
        seen.append(held_against(recorder, stored_table(), (DATA, MODEL)).combinations())
    in_bfloat16 = {(name, with_types(types, "float16", "bfloat16")) for name, types in seen[0]}
    return {"same": in_bfloat16 == seen[1], "combinations": len(seen[1])}


def without_a_kernel() -> Seen:
    """What stage gpt did before: codes of 64 bits, padded."""
    apply_plan(plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), find_inventory(2)))
    recorder = Recorder(stage="gpt")

    def padded(codes: tf.Tensor) -> tf.Tensor:
        return tf.pad(codes, [[0, 0], [1, 0]])

    with recorder.watching(), tf.device(MODEL):
        tf.function(padded)(tf.zeros([1, 2], tf.int64))
        padded(tf.zeros([1, 2], tf.int32))
    return tell(recorder, line=padded.__code__.co_firstlineno + 1)


def one_step(trainer: XTTSTrainer, name: Any) -> None:
    trainer.start_stage(name)
    stage, batch, devices = trainer.current_stage(), host_batch(), TensorFlowDevices()
    models = [role.name for role in trainer.plan.models]
    with devices.scope(trainer.plan.producer_device):
        processed = stage.process(batch)
        if stage.measured_batches:
            stage.measure([processed])
        rows = split_rows(processed, len(models))
    moved = devices.copy(rows, models).replicas
    batches = [DeviceBatch(0, moved, {})] * trainer.config.training.grad_accum
    trainer.learn(batches)
    if trainer.config.training.jit_compile:
        return
    trainer.evaluate(batches[:1])
    with devices.scope(models[0]):
        stage.validate_together(moved[:1])


def speak(trainer: XTTSTrainer, name: Any) -> None:
    parts = parts_after(stage_named(name, trainer.config.model), trainer.config.model)
    manifest = VoiceManifest(parts=parts, alignment_heads=((0, 1),), classifier_free_guidance=True)
    tokenizer = train_tokenizer("characters", [("one two three four", "en")])
    voice = Voice(manifest=manifest, config=trainer.config, tokenizer=tokenizer, sha256="", speakers={})
    model = TensorFlowModel(voice, trainer.model, device=MODEL)
    synthesizer = Synthesizer(voice, model)
    reference = np.random.default_rng(0).standard_normal(22050).astype(np.float32) / 10
    synthesizer.speak("one two", reference=[reference], checks=HallucinationChecks(retries=0))
    latents_1LD = synthesizer.latents([reference]).latents_LD[None]
    with tf.device(MODEL):
        next(model.generator.stream(TextBatch(latents_1LD, [[5, 6, 7]], [3])))


def host_batch() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    wave = random.integers(-4000, 4000, (2, 33000)).astype(np.int16)
    lengths = np.array([33000, 22050], np.int32)
    return {
        "wave": wave,
        "wave_lengths": lengths,
        "reference": wave,
        "reference_lengths": lengths,
        "draw": random.random(2, dtype=np.float32),
        "text": np.full((2, 5), 7, np.int32),
        "text_lengths": np.array([5, 4], np.int32),
        "speaker": np.arange(2, dtype=np.int32),
        "alignment": np.zeros((2, 33), np.int32),
    }


def tell(
    recorder: Recorder,
    also: Sequence[tuple[str, str]] = (),
    devices: Sequence[str] = (DATA, MODEL),
    **more: Any,
) -> Seen:
    found = held_against(recorder, stored_table(), devices, also)
    return {
        "missing": found.report(),
        "anywhere": sorted(found.anywhere),
        "functions": sorted({own.function for own in found.operations}),
        "traced": len({call.function for call in recorder.calls}),
        "operations": len(found.operations),
        "compiled": sum(own.compiled for own in found.operations),
        "types": sorted({name for own in found.operations for _, names in own.types for name in names}),
        "combinations": len(found.combinations()),
        "collectives": Counter(own.device for own in found.operations if own.name.startswith("Collective")),
        "host": {stage: dict(counted.most_common()) for stage, counted in found.in_host_memory.items()},
        "learn": copies_inside(recorder, "learn", devices),
        "process": copies_inside(recorder, "process", devices),
        **more,
    }


tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
