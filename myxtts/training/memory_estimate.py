"""What a stage takes of each device's memory, from the settings alone: TensorFlow is not needed to ask.

Weights, gradients, moments and averages are counted exactly (`myxtts.models.parameter_counts`). Activations are counted
layer by layer, for the largest batch that the settings allow and clips as long as `--max-clip-seconds`. How many values
a layer keeps was read off its code and fitted to steps measured on CPU devices in float32, which
`tests/integration/test_memory_estimate.py` does again. A step is fullest where it turns back, before there are
gradients, or in the update. What a GPU's libraries take beside TensorFlow is `myxtts.runtime.plan.usable_mb`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import psutil

from myxtts.config.config import XTTSConfig
from myxtts.config.model import FRAMES_PER_CODE, ModelConfig
from myxtts.errors import TrainingError
from myxtts.models.parameter_counts import count_of, counted, mel_discriminator, wave_discriminators
from myxtts.runtime.plan import DevicePlan
from myxtts.training.recipes import recipe_for, with_batches_of
from myxtts.training.stages.hifigan_settings import SETTINGS, HiFiGANSettings
from myxtts.training.stages.spec import StageSpec

FRAMES_PER_SECOND = 22050 / 256
TOKENS_PER_SECOND = 15.0
"""Of phonemes; what a clip of some seconds is taken to have."""
MELS = 80
SEGMENT_FRAMES = 64
"""Of stage codec."""
UPDATE_SHARE = 1.25
"""What the update holds at once, over the gradients: measured 1.19 to 1.25 where activations are few."""
SIXTEEN_BIT_SHARE = 0.6
"""Of float32's activations: norms, losses and spectra stay in 32 bits. Reckoned: to measure it takes a GPU."""
MOST_CLIPS = 4096
"""No larger batch is looked for."""
CTC_NETWORK_MB = 1.6
"""Weights of the aligner that codec and mel decoder learn from. Its activations are gone before a step is fullest."""
_MB = 4 / 2**20
"""Of one number in float32."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Clips of one length, as the longest of a corpus are batched."""

    clips: float
    seconds: float
    reference_seconds: float

    def codes(self, model: ModelConfig) -> int:
        return min(math.ceil(self.seconds * FRAMES_PER_SECOND / FRAMES_PER_CODE), model.max_clip_codes)

    def share(self, replicas: int) -> Batch:
        """What one of several replicas gets."""
        return replace(self, clips=math.ceil(self.clips / replicas))

    def tokens(self, model: ModelConfig) -> int:
        return min(int(self.seconds * TOKENS_PER_SECOND), model.max_text_tokens)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """MB of one device in one stage."""

    weights: float
    gradients: float = 0.0
    optimiser: float = 0.0
    averages: float = 0.0
    activations: float
    """At the fullest moment of a step, beyond what the gradients take."""

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimiser + self.averages + self.activations

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            weights=self.weights + other.weights,
            gradients=self.gradients + other.gradients,
            optimiser=self.optimiser + other.optimiser,
            averages=self.averages + other.averages,
            # One after the other on the same device: the larger of the two is what must fit.
            activations=max(self.activations, other.activations),
        )


def largest_batch(config: XTTSConfig, spec: StageSpec, *, clips: float | None = None) -> Batch:
    """As large as the limits of the stage's batches allow, or of so many clips."""
    recipe = recipe_for(config, spec)
    limits, seconds = with_batches_of(recipe, config.data), config.data.max_clip_seconds
    by_seconds = math.inf if limits.batch_seconds is None else max(1.0, limits.batch_seconds / seconds)
    allowed = min(by_seconds, math.inf if limits.batch_size is None else limits.batch_size)
    return Batch(clips=allowed if clips is None else clips, seconds=seconds, reference_seconds=recipe.reference_seconds)


def refuse_weights_beyond_memory(config: XTTSConfig, plan: DevicePlan) -> None:
    """Raise `TrainingError` where a model device could not even hold the model. TensorFlow's own error would be a
    traceback, or the system would end the process when the memory is used."""
    numbers = _numbers_of(config.model)
    for role in plan.models:
        given_mb = role.memory_limit_mb or (plan.gpus[role.visible].memory_mb if plan.gpus else None)
        has_mb = given_mb or psutil.virtual_memory().total / 2**20
        if numbers * _MB > has_mb:
            raise TrainingError(
                f"the model has {numbers:,} weights, which take {numbers * _MB / 1024:,.1f} GB, "
                f"and {role.label} has {has_mb / 1024:,.1f} GB",
                hint="choose a smaller --model-size; the settings of the section model in --config are larger than it",
            )


def _numbers_of(model: ModelConfig) -> int:
    """Every part of the voice is on a model device; those without a count are not known yet."""
    return sum(count_of(part, model).all for part in counted(model.parts))


def can_estimate(config: XTTSConfig, spec: StageSpec) -> bool:
    """Whether this stage's activations and all parts of the model are counted; a new one's need not be."""
    return spec.purpose in _STEPS and counted(config.model.parts) == config.model.parts


def model_device(config: XTTSConfig, spec: StageSpec, batch: Batch, *, sixteen_bits: bool = False) -> Estimate:
    """Of one device that learns a stage with an estimate, `batch` its own share of the clips."""
    model, step = config.model, _STEPS[spec.purpose]
    discriminators = step.discriminators(config)
    trained_mb = (sum(count_of(part, model).trained for part in spec.learns) + discriminators) * _MB
    share = step.measured_share * (SIXTEEN_BIT_SHARE if sixteen_bits else 1.0)
    turning_mb = share * batch.clips * step.elements(config, batch) * _MB
    update_mb = UPDATE_SHARE * trained_mb
    step_mb = turning_mb + update_mb if step.gradients_first else max(turning_mb, update_mb)
    ctc = step.ctc_loss and config.training.ctc_loss_weight
    return Estimate(
        weights=(_numbers_of(model) + discriminators) * _MB + (CTC_NETWORK_MB if ctc else 0.0),
        gradients=trained_mb * (2 if config.training.grad_accum > 1 else 1),
        optimiser=2 * trained_mb,
        averages=trained_mb if recipe_for(config, spec).ema else 0.0,
        activations=step_mb - trained_mb,
    )


def data_device(config: XTTSConfig, spec: StageSpec, batch: Batch, *, copies: bool = True) -> Estimate:
    """Of the device that computes mels, codes and latents of a stage with an estimate: one layer after another, with
    `copies` of frozen parts."""
    frozen = sum(count_of(part, config.model).all for part in spec.requires) if copies else 0
    return Estimate(weights=frozen * _MB, activations=batch.clips * _processed(config, spec, batch) * _MB)


def most_clips(fits: Callable[[int], bool]) -> int:
    """The largest number of clips that fits; 0 where not even one does."""
    if not fits(1):
        return 0
    low, high = 1, MOST_CLIPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _codec(config: XTTSConfig, batch: Batch) -> float:
    """Two residual towers at the codes' rate, down and up between that and the mel's, distances to every code."""
    model, codes = config.model, SEGMENT_FRAMES / FRAMES_PER_CODE
    network = codes * model.dvae_width * 61
    return network + 2 * codes * model.audio_codes + 8 * SEGMENT_FRAMES * MELS


def _gpt(config: XTTSConfig, batch: Batch) -> float:
    """Each block keeps 14.75 widths a position and the probabilities of its windows, with a quarter for dropout; the
    block that is being traced back has 28 widths beside, for a while."""
    model = config.model
    audio, text = batch.codes(model) + 1, batch.tokens(model) + 2
    positions = audio + text + model.conditioning_latents
    width, windows = positions * model.gpt_width, 2 / 3 * model.gpt_heads * positions**2
    blocks = model.gpt_layers * (14.75 * width + 1.25 * windows) + 28 * width
    heads = audio * (model.audio_codes + 2) + text * model.text_vocab
    frames = batch.reference_seconds * FRAMES_PER_SECOND
    conditioning = model.conditioning_layers * (6.5 * frames * model.gpt_width + model.gpt_heads * frames**2)
    return blocks + heads + conditioning


def _mel(config: XTTSConfig, batch: Batch) -> float:
    """Residual towers over codes, the text's reader, the mel discriminator on a made and a real mel."""
    model = config.model
    codes, tokens = batch.codes(model), batch.tokens(model)
    network = (52 * codes + 6 * tokens) * model.dvae_width + 5 * codes * model.gpt_width
    return network + codes * (10 * FRAMES_PER_CODE * MELS + 4 * 4480)


def _hifigan(config: XTTSConfig, batch: Batch) -> float:
    """Nine pairs of convolutions at each of four rates with four values each, what the discriminators find in a wave,
    and the speaker encoder's 34 million values for 3 s, half of them at once."""
    settings, width = _settings(config), config.model.decoder_width
    frames = math.floor(settings.segment_latents * FRAMES_PER_CODE * 24000 / 22050)
    generator = 39 * frames * width * (8 / 2 + 64 / 4 + 128 / 8 + 256 / 16)
    discriminators = 0.9 * (5 * 69 + 3 * 128) * 256 * frames / settings.discriminator_shrink
    return generator + discriminators + 60 * 256 * frames + 5.6e6 * settings.speaker_seconds


def _settings(config: XTTSConfig) -> HiFiGANSettings:
    return SETTINGS[config.model.model_size]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step of one stage keeps."""

    elements: Callable[[XTTSConfig, Batch], float]
    """Of one clip, for turning back."""
    measured_share: float
    """A measured step's activations over those elements, in float32 on CPU devices."""
    discriminators: Callable[[XTTSConfig], int] = lambda config: 0
    """Their numbers."""
    ctc_loss: bool = False
    gradients_first: bool = False
    """A wave's discriminators have their gradients before the generator has turned back."""


_STEPS = {
    "dvae": Step(elements=_codec, measured_share=0.95, ctc_loss=True),
    "gpt": Step(elements=_gpt, measured_share=1.0),
    "mel_decoder": Step(
        elements=_mel, measured_share=0.93, discriminators=lambda config: mel_discriminator().all, ctc_loss=True
    ),
    "hifigan": Step(
        elements=_hifigan,
        measured_share=1.0,
        discriminators=lambda config: wave_discriminators(_settings(config).discriminator_shrink).all,
        gradients_first=True,
    ),
}
"""By the part that the stage is for."""


def _processed(config: XTTSConfig, spec: StageSpec, batch: Batch) -> float:
    """Elements of a clip that the data work has alive at once."""
    model = config.model
    frames = SEGMENT_FRAMES if spec.name == "codec" else batch.seconds * FRAMES_PER_SECOND
    alive = frames * 1500.0
    if "dvae" in spec.requires:
        alive = max(alive, batch.codes(model) * (4 * model.dvae_width + 2 * model.audio_codes))
    if "gpt" in spec.requires:
        positions = batch.codes(model) + batch.tokens(model) + model.conditioning_latents
        block = 10 * positions * model.gpt_width + model.gpt_heads * positions**2
        heads = 2 * (batch.codes(model) * (model.audio_codes + 2) + batch.tokens(model) * model.text_vocab)
        alive = max(alive, block + heads)
    return alive
