"""How the model learns, on which devices, and where a run writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from myxtts.config.checks import at_least, check_seed, in_range
from myxtts.config.gpus import as_tuple
from myxtts.config.presets import FROM_PRESET, OPTIMIZATION_LEVELS, fill_from
from myxtts.errors import ConfigError

Stage = Literal["codec", "gpt", "decoder"]
VoicePart = Literal["dvae", "conditioning", "gpt", "mel_decoder", "speaker_encoder", "hifigan"]
VOICE_PARTS: tuple[VoicePart, ...] = get_args(VoicePart)
"""In the order in which a voice has them."""
FROM_SCRATCH = {
    "alignment_weight": 0.5,
    "token_corruption": 0.1,
    "concatenation": 0.7,
    "text_dropout": 0.1,
    "speed_perturbation": 0.08,
}
"""How a GPT learns that no voice brought, unless it is told otherwise; one that came from much speech does not learn
by heart so soon."""
MIN_MEMORY_MB = 256
"""TensorFlow's own kernels and cuDNN take about 200 MB before the first tensor."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Stages, optimiser, devices of the model, memory limits and the run's folder."""

    run_dir: str = "runs/default"
    """Folder of everything that a run writes: config.yaml, events.jsonl, checkpoints, samples, report.html."""

    checkpoint_dir: str | None = None
    """Folder of the checkpoints; by default inside the run's folder."""

    keep: int = 3
    """Checkpoints kept beside the best one."""

    checkpoint_every: int = 500
    """Steps between checkpoints."""

    validate_every: int = 500
    """Steps between validations."""

    samples: int = 2
    """Held-out sentences spoken (or clips coded and decoded) into samples/ at each validation; 0 for none."""

    stage: Stage | None = None
    """Train this stage only; without it, all stages that are not done yet, in order."""

    init_from: str | None = None
    """Start from this voice (a run, or a folder of import-xtts or export): its sizes, vocabulary and weights."""

    init_parts: tuple[VoicePart, ...] = ()
    """Parts to take from --init-from; by default all but a mel decoder. Stages whose parts are there run only if asked
    for, except gpt, which is what is fine-tuned."""

    epochs: int | None = None
    """Most passes over the corpus, for each stage; 250 without it and without a number of steps."""

    max_steps: int | None = None
    """Most steps of each stage; without it, the preset's recipe. --epochs beside it may end the stage before."""

    codec_steps: int | None = None
    """Most steps of stage codec, whatever --max-steps says of the others."""

    gpt_steps: int | None = None
    """Most steps of stage gpt, whatever --max-steps says of the others."""

    decoder_steps: int | None = None
    """Most steps of stage decoder, whatever --max-steps says of the others."""

    discriminator_start: int | None = None
    """Steps of stage decoder before its discriminators join; without it, HiFi-GAN's have the preset's recipe, the mel
    decoder's a third of the stage. 0: from the start."""

    seed: int = 0
    """Decides the order of the data, the initial weights and every sampled number."""

    log_every: int = 20
    """Steps between two lines of the log."""

    learning_rate: float | None = None
    """Highest learning rate; without it, the recipe's of the stage. The GPT's conditioning learns at a third of it."""

    alignment_weight: float = field(default=FROM_PRESET)
    """Share of the loss that teaches two of the GPT's heads which token is spoken when; 0 trains without an aligner.
    0.5 unless given; 0 for the GPT of an --init-from voice that was trained without."""

    ctc_loss_weight: float = 4.0
    """Share of the codec's loss for what an aligner hears in its speech and in the recording; 0 compares mels only."""

    token_corruption: float = field(default=FROM_PRESET)
    """Share of the codes that the GPT reads while learning that are others than the clip's, so that little speech is
    not learnt by heart. 0.1 unless given; 0 for the GPT of an --init-from voice."""

    text_dropout: float = field(default=FROM_PRESET)
    """Share of the clips whose text the GPT does not see while learning: it gets to know how speech goes on whatever is
    said, which speaking is guided away from (synth --guidance). 0.1 unless given; 0 for the GPT of an --init-from
    voice."""

    concatenation: float = field(default=FROM_PRESET)
    """Share of the clips that the GPT learns with the end of another clip of the same speaker from some word on, so
    that little speech is not learnt by heart; it needs an aligner. 0.7 unless given; 0 for the GPT of an --init-from
    voice."""

    speed_perturbation: float = field(default=FROM_PRESET)
    """Each time the GPT learns a clip its codes begin elsewhere, and it is up to this share faster or slower, its
    reference as well, less so with every step, so that little speech is not learnt by heart. 0.08 unless given; 0 for
    the GPT of an --init-from voice."""

    grad_accum: int = 1
    """Batches whose gradients are added up before the optimiser steps."""

    optimization_level: Literal["basic", "enhanced", "experimental"] = "basic"
    """Named set: basic changes nothing, enhanced compiles steps with XLA, experimental adds mixed precision."""

    jit_compile: bool = field(default=FROM_PRESET)
    """Compile the train step with XLA (set by --optimization-level unless given)."""

    mixed_precision: bool = field(default=FROM_PRESET)
    """Compute in 16 bits on GPUs that can (set by --optimization-level unless given)."""

    multi_gpu: bool = False
    """Mirror the model over all visible GPUs."""

    visible_gpus: str | None = None
    """GPUs that may be used, with commas between ("0,1"); without it, all."""

    enable_memory_isolation: bool = False
    """Give the data GPU and the model GPU hard memory limits; needs --data-gpu and --model-gpu."""

    data_gpu_memory: int = 8192
    """Memory limit of the data GPU in MB, with --enable-memory-isolation."""

    model_gpu_memory: int = 16384
    """Memory limit of the model GPU in MB, with --enable-memory-isolation."""

    simulate_gpus: int = 0
    """Let this many CPU devices stand for GPUs: the whole pipeline without a GPU."""

    cpu_threads: int | None = None
    """Threads of one operation on a CPU. By default every simulated GPU has an even share of the cores, as if they were
    apart; all cores are faster where one device has most of the work."""

    def steps_asked_for(self, stage: Stage) -> tuple[str, int] | None:
        """The flag that says how many steps a stage has at most, and what it says; None where the recipe decides."""
        own: dict[Stage, int | None] = {
            "codec": self.codec_steps,
            "gpt": self.gpt_steps,
            "decoder": self.decoder_steps,
        }
        if (steps := own[stage]) is not None:
            return f"--{stage}-steps", steps
        return None if self.max_steps is None else ("--max-steps", self.max_steps)

    def __post_init__(self) -> None:
        fill_from(self, OPTIMIZATION_LEVELS, "--optimization-level", self.optimization_level)
        at_least("--keep", self.keep, 1, hint="the default is 3")
        at_least("--checkpoint-every", self.checkpoint_every, 1, hint="the default is 500 steps")
        at_least("--validate-every", self.validate_every, 1, hint="the default is 500 steps")
        in_range("--samples", self.samples, 0, 16, hint="2 is enough to hear how it goes; 0 turns them off")
        at_least("--epochs", self.epochs, 1, hint="leave it out for the recipe's steps")
        at_least("--max-steps", self.max_steps, 1, hint="leave it out to train by --epochs")
        for name in ("codec_steps", "gpt_steps", "decoder_steps"):
            at_least(f"--{name.replace('_', '-')}", getattr(self, name), 1, hint="leave it out for the recipe's")
        at_least("--log-every", self.log_every, 1, hint="the default is 20 steps")
        at_least("--grad-accum", self.grad_accum, 1, hint="1 steps after every batch")
        at_least(
            "--discriminator-start", self.discriminator_start, 0, hint="0 has the discriminators from the first step"
        )
        check_seed(self.seed)
        in_range("--learning-rate", self.learning_rate, 1e-8, 1.0, hint="1e-3 suits tiny, 1e-4 big")
        # What a voice was trained with is known only once it is read: see myxtts.training.initial_voice.
        for name, value in FROM_SCRATCH.items() if self.init_from is None else ():
            if getattr(self, name) is FROM_PRESET:
                object.__setattr__(self, name, value)
        in_range("--alignment-weight", self.alignment_weight, 0.0, 10.0, hint="0.5 from scratch, 0 to leave it out")
        in_range("--ctc-loss-weight", self.ctc_loss_weight, 0.0, 100.0, hint="4 from scratch, 0 to leave it out")
        in_range("--concatenation", self.concatenation, 0.0, 1.0, hint="0.7 from scratch, 0 to leave it out")
        in_range("--text-dropout", self.text_dropout, 0.0, 0.9, hint="0.1 from scratch, 0 to leave it out")
        in_range("--token-corruption", self.token_corruption, 0.0, 0.9, hint="0.1 from scratch, 0 to leave it out")
        in_range("--speed-perturbation", self.speed_perturbation, 0.0, 0.3, hint="0.08 from scratch, 0 to leave it out")
        at_least("--cpu-threads", self.cpu_threads, 1, hint="leave it out for a share of the cores")
        at_least("--simulate-gpus", self.simulate_gpus, 0, hint="2 is enough for the dual pipeline")
        for flag, limit_mb in (
            ("--data-gpu-memory", self.data_gpu_memory),
            ("--model-gpu-memory", self.model_gpu_memory),
        ):
            at_least(flag, limit_mb, MIN_MEMORY_MB, hint="limits are in MB: 8192 is 8 GB")
        try:
            as_tuple(self.visible_gpus)
        except ConfigError:
            raise ConfigError(
                f"--visible-gpus is {self.visible_gpus!r}, must be different GPU numbers with commas between",
                hint='for example --visible-gpus "0,1"; leave it out to see all GPUs',
            ) from None
