"""Sizes of the model's parts. The presets change sizes only; `big` is XTTS v2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from myxtts.config.checks import at_least, in_range
from myxtts.config.presets import FROM_PRESET, MODEL_SIZES, fill_from
from myxtts.errors import ConfigError

ModelSize = Literal["tiny", "small", "normal", "big"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """XTTS: DVAE, conditioning, GPT, speaker encoder and HiFi-GAN."""

    model_size: ModelSize = "normal"
    """Preset of all sizes below: tiny learns on a CPU, big is XTTS v2."""

    text_vocab: int = field(default=FROM_PRESET)
    """Entries of the text embedding; the tokenizer's size replaces it when a run starts from scratch."""

    audio_codes: int = field(default=FROM_PRESET)
    """Entries of the DVAE's codebook."""

    gpt_layers: int = field(default=FROM_PRESET)
    """Transformer blocks of the GPT."""

    gpt_width: int = field(default=FROM_PRESET)
    """Width of the GPT; must be a multiple of --gpt-heads."""

    gpt_heads: int = field(default=FROM_PRESET)
    """Attention heads of a GPT block."""

    max_text_tokens: int = field(default=FROM_PRESET)
    """Longest text, in tokens, that the GPT has positions for."""

    max_audio_tokens: int = field(default=FROM_PRESET)
    """Longest audio, in codes (21.5 a second), that the GPT has positions for."""

    conditioning_latents: int = field(default=FROM_PRESET)
    """Vectors that the perceiver makes of a reference clip."""

    dvae_width: int = field(default=FROM_PRESET)
    """Channels of the DVAE at the rate of the codes; half as many at twice that rate."""

    dvae_code_width: int = field(default=FROM_PRESET)
    """Width of a codebook entry."""

    decoder_width: int = field(default=FROM_PRESET)
    """Channels at the start of HiFi-GAN's upsampling."""

    speaker_width: int = field(default=FROM_PRESET)
    """Width of the speaker vector."""

    dropout: float = 0.1
    """Share of activations dropped in the GPT while it trains."""

    def __post_init__(self) -> None:
        fill_from(self, MODEL_SIZES, "--model-size", self.model_size)
        for name in ("gpt_layers", "gpt_width", "gpt_heads", "dvae_width", "dvae_code_width", "decoder_width"):
            at_least(f"--{name.replace('_', '-')}", getattr(self, name), 1, hint="see --model-size for sizes that work")
        in_range("--dropout", self.dropout, 0.0, 0.9, hint="the default is 0.1")
        if self.gpt_width % self.gpt_heads:
            raise ConfigError(
                f"--gpt-width is {self.gpt_width}, not a multiple of --gpt-heads {self.gpt_heads}",
                hint="64 a head is usual: width 512 with 8 heads",
            )
