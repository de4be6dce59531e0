"""Config section `training`: stages, optimiser, losses, augmentation, model devices and the run's folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from myxtts.config.checks import at_least, check_seed, in_range
from myxtts.config.gpus import as_tuple
from myxtts.config.parts import voice_parts
from myxtts.config.presets import NOT_GIVEN, OPTIMIZATION_LEVELS, fill, preset
from myxtts.config.public import flag, shown
from myxtts.config.suggest import unknown_name
from myxtts.errors import ConfigError

Stage = str
"""The name of a stage, as `myxtts.training.stages` declares it."""
STAGE_STEPS = ("codec_steps", "gpt_steps", "decoder_steps")
"""Settings that limit one stage's steps; a stage without one has `max_steps`."""
FROM_SCRATCH = {
    "alignment_weight": 0.5,
    "token_corruption": 0.1,
    "concatenation": 0.7,
    "text_dropout": 0.1,
    "speed_perturbation": 0.08,
}
"""How a GPT is regularised that starts from random weights, unless given: a small corpus overfits without it. One that
a voice brings has seen more speech."""
MIN_MEMORY_MB = 256
"""TensorFlow's own kernels and cuDNN take about 200 MB before the first tensor."""
OPTIMISER_SETTINGS = (
    *("learning_rate", "final_learning_rate_share", "warmup_steps"),
    *("beta_1", "beta_2", "weight_decay", "clip_norm", "ema"),
)
"""Settings of the optimiser that a stage's recipe has under the same name."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Stages, optimiser, model devices, memory limits and the run's folder."""

    run_dir: str = "runs/default"
    """Folder that a run writes to: config.yaml, events.jsonl, checkpoints/, samples/, voice/, report.html."""

    checkpoint_dir: str | None = None
    """Folder of the checkpoints; by default inside the run's folder."""

    keep: int = 3
    """Checkpoints kept beside the best one."""

    checkpoint_every: int = 500
    """Steps between checkpoints."""

    validate_every: int = 500
    """Steps between validations."""

    samples: int = 2
    """Held-out sentences synthesised (stage codec: clips coded and decoded) in samples/ at each validation; 0: none."""

    stage: Stage | None = None
    """Train this stage only; without it, all stages that are not done yet, in order."""

    init_from: str | None = None
    """Fine-tune this voice (base, a run, or a folder of import-xtts or export): its sizes, vocabulary and weights."""

    init_parts: tuple[str, ...] = ()
    """Parts of the model to take from --init-from; by default all. A stage whose parts all come from the voice runs
    only with --stage, except gpt and a mel decoder's, which are fine-tuned."""

    epochs: int | None = None
    """Most epochs of each stage; 250 without it and without a number of steps."""

    max_steps: int | None = None
    """Most optimiser steps of each stage; without it, the recipe's. --epochs beside it may end the stage before."""

    codec_steps: int | None = None
    """Most steps of stage codec, in place of --max-steps."""

    gpt_steps: int | None = None
    """Most steps of stage gpt, in place of --max-steps."""

    decoder_steps: int | None = None
    """Most steps of stage decoder, in place of --max-steps."""

    discriminator_start: int | None = None
    """Steps of stage decoder before its discriminators and the adversarial loss start; 0: from the first step. Without
    it, the recipe's for HiFi-GAN and a third of the stage for the mel decoder."""

    seed: int = 0
    """Seed of the data order, the initial weights, the augmentation and dropout."""

    log_every: int = 20
    """Steps between two events of the log, and between two windows of figures."""

    learning_rate: float | None = None
    """Peak learning rate, after warm-up; without it, the recipe's of the stage. The GPT's conditioning encoder learns
    at a third of it."""

    warmup_steps: int | None = None
    """Steps of linear warm-up to the peak learning rate, at most a tenth of the stage; without it, the recipe's."""

    final_learning_rate_share: float | None = None
    """Learning rate at the end of the cosine schedule, as a share of the peak; without it, the recipe's (0.05)."""

    beta_1: float | None = None
    """AdamW's decay of the first moment; without it, the recipe's (0.9, and 0.8 for HiFi-GAN)."""

    beta_2: float | None = None
    """AdamW's decay of the second moment; without it, the recipe's (0.98, and 0.99 for HiFi-GAN)."""

    weight_decay: float | None = None
    """AdamW's decoupled weight decay of matrices; without it, the recipe's (0.01, and 0 in stage decoder)."""

    clip_norm: float | None = None
    """Largest norm of the gradient of each parameter group (gradient clipping); without it, the recipe's (1, and 100
    for HiFi-GAN)."""

    ema: float | None = None
    """Decay of the exponential moving average of the weights, which is what is validated and exported; 0 keeps none.
    Without it, the recipe's (0.999 for a GPT of size normal or big, 0 elsewhere)."""

    alignment_weight: float = field(default=NOT_GIVEN)
    """Weight of the alignment loss: two attention heads of the GPT are supervised with forced alignments of a CTC
    aligner. 0 trains without an aligner. 0.5 unless given; 0 for the GPT of an --init-from voice that was trained
    without."""

    ctc_loss_weight: float = 4.0
    """Weight of the CTC perceptual loss of stage codec and of the mel decoder: the difference between the activations
    of a CTC aligner for its mels and for the recording's. 0 for a loss of mels only."""

    token_corruption: float = field(default=NOT_GIVEN)
    """Token corruption: share of the audio codes in the GPT's input that are replaced by random ones while it trains,
    against overfitting. 0.1 unless given; 0 for the GPT of an --init-from voice."""

    text_dropout: float = field(default=NOT_GIVEN)
    """Text dropout: share of the clips whose text is hidden from the GPT while it trains, for unconditional logits in
    classifier-free guidance (synth --guidance). 0.1 unless given; 0 for the GPT of an --init-from voice."""

    concatenation: float = field(default=NOT_GIVEN)
    """Concatenation augmentation: share of the GPT's clips that continue, from a word boundary on, with the end of
    another clip of the same speaker, against overfitting. It needs an aligner. 0.7 unless given; 0 for the GPT of an
    --init-from voice."""

    speed_perturbation: float = field(default=NOT_GIVEN)
    """Speed perturbation: clips and references of stage gpt are played up to this share faster or slower, with a random
    offset of the code grid, less with every step, against overfitting. 0.08 unless given; 0 for the GPT of an
    --init-from voice."""

    grad_accum: int = 1
    """Gradient accumulation: batches whose gradients are summed for one optimiser step."""

    optimization_level: Literal["basic", "enhanced", "experimental"] = "basic"
    """Preset: basic changes nothing, enhanced compiles steps with XLA, experimental adds mixed precision."""

    jit_compile: bool = field(default=NOT_GIVEN)
    """Compile the train step with XLA (set by --optimization-level unless given)."""

    mixed_precision: bool = field(default=NOT_GIVEN)
    """Mixed precision: compute in 16 bits on GPUs that can (set by --optimization-level unless given)."""

    tf32: bool = True
    """Products of 32-bit numbers with 10 bits of mantissa (TensorFloat-32) where a GPU has that: faster, and the usual
    way to train. Off, they are computed in full."""

    deterministic: bool = False
    """Deterministic operations: the same numbers in every run on the same GPUs. Some are slower, and one that has no
    deterministic kernel ends the run with its name."""

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
    """Simulate this many GPUs with CPU devices: the whole pipeline without a GPU."""

    cpu_threads: int | None = None
    """Intra-op threads of a CPU device. By default each simulated GPU has an even share of the cores; all cores are
    faster where one device has most of the work."""

    cluster: str | None = None
    """Train over several machines with Ray: local starts one here, auto finds the one that `ray start` made, and
    HOST:PORT is one's head. The corpus's cache and the run's folder must be on storage that all nodes share."""

    data_workers: int = 1
    """With --cluster: processes that compute batches ahead of the model, a device each, on any node."""

    model_workers: int = 1
    """With --cluster: processes that learn together, a device each; every batch is shared out among them."""

    max_restarts: int = 10
    """With --cluster: restarts from the last checkpoint, in a row without a new one, before the run is given up."""

    elastic: bool = False
    """With --cluster: go on with the devices that are left when a node is lost, instead of waiting for it. Batches stay
    the same, and each model worker has more of their rows."""

    def steps_asked_for(self, stage: Stage) -> tuple[str, int] | None:
        """The setting that limits a stage's steps, as a message names it, and its value; None where the recipe does."""
        for name in (f"{stage}_steps", "max_steps"):
            if (steps := getattr(self, name, None)) is not None:
                return shown(name), steps
        return None

    def __post_init__(self) -> None:
        fill(self, preset(OPTIMIZATION_LEVELS, "--optimization-level", self.optimization_level))
        # What the voice of --init-from was trained with is known once it is read: myxtts.training.initial_voice.
        if self.init_from is None:
            fill(self, FROM_SCRATCH)
        for name, minimum, hint in _MINIMA:
            at_least(shown(name), getattr(self, name), minimum, hint=hint)
        for name, low, high, hint in _RANGES:
            in_range(shown(name), getattr(self, name), low, high, hint=hint)
        check_seed(self.seed)
        for part in self.init_parts:
            if part not in voice_parts():
                raise unknown_name(shown("init_parts"), part, voice_parts())
        try:
            as_tuple(self.visible_gpus)
        except ConfigError:
            raise ConfigError(
                f"{flag('visible_gpus')} is {self.visible_gpus!r}, must be different GPU numbers with commas between",
                hint='for example --visible-gpus "0,1"; leave it out to see all GPUs',
            ) from None


_MINIMA = (
    ("keep", 1, "the default is 3"),
    ("checkpoint_every", 1, "the default is 500 steps"),
    ("validate_every", 1, "the default is 500 steps"),
    ("epochs", 1, "leave it out for the recipe's steps"),
    ("max_steps", 1, "leave it out to train by --epochs"),
    *((steps, 1, "leave it out for the recipe's") for steps in STAGE_STEPS),
    ("log_every", 1, "the default is 20 steps"),
    ("grad_accum", 1, "1 steps after every batch"),
    ("discriminator_start", 0, "0 starts the discriminators with the first step"),
    ("warmup_steps", 0, "0 starts at the peak learning rate"),
    ("cpu_threads", 1, "leave it out for a share of the cores"),
    ("simulate_gpus", 0, "2 is enough for the dual pipeline"),
    ("data_workers", 1, "one producer is enough where the model is the bottleneck"),
    ("model_workers", 1, "1 trains on one device"),
    ("max_restarts", 0, "0 ends the run with the first lost worker"),
    ("data_gpu_memory", MIN_MEMORY_MB, "limits are in MB: 8192 is 8 GB"),
    ("model_gpu_memory", MIN_MEMORY_MB, "limits are in MB: 8192 is 8 GB"),
)
"""Setting, least value, hint."""

_RANGES = (
    ("samples", 0, 16, "2 are enough to hear how it goes; 0 turns them off"),
    ("learning_rate", 1e-8, 1.0, "1e-3 suits tiny, 1e-4 big"),
    ("final_learning_rate_share", 0.0, 1.0, "0.05 decays to a twentieth, 1 keeps the peak rate"),
    ("beta_1", 0.0, 0.9999, "0.9 is usual"),
    ("beta_2", 0.0, 0.99999, "0.98 to 0.999 are usual"),
    ("weight_decay", 0.0, 1.0, "0.01 is usual, 0 turns it off"),
    ("clip_norm", 1e-6, 1e6, "1 is usual; a large number clips nothing"),
    ("ema", 0.0, 0.99999, "0.999 is usual, 0 keeps no average"),
    ("alignment_weight", 0.0, 10.0, "0.5 from scratch, 0 to leave it out"),
    ("ctc_loss_weight", 0.0, 100.0, "4 from scratch, 0 to leave it out"),
    ("concatenation", 0.0, 1.0, "0.7 from scratch, 0 to leave it out"),
    ("text_dropout", 0.0, 0.9, "0.1 from scratch, 0 to leave it out"),
    ("token_corruption", 0.0, 0.9, "0.1 from scratch, 0 to leave it out"),
    ("speed_perturbation", 0.0, 0.3, "0.08 from scratch, 0 to leave it out"),
)
"""Setting, least and largest value, hint."""
