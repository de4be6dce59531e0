"""Config section `model`: sizes of the networks. The presets change sizes only; `big` is XTTS v2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from myxtts.config.checks import at_least, in_range
from myxtts.config.parts import CORE_PARTS, DECODERS
from myxtts.config.presets import MODEL_SIZES, NOT_GIVEN, fill, preset
from myxtts.config.public import shown
from myxtts.config.suggest import unknown_name
from myxtts.errors import ConfigError

FRAMES_PER_CODE = 4
"""Mel frames of one audio code: the DVAE halves their rate twice."""

_COUNTS = (
    "text_vocab",
    "audio_codes",
    "gpt_layers",
    "gpt_width",
    "gpt_heads",
    "max_text_tokens",
    "max_audio_tokens",
    "conditioning_latents",
    "conditioning_layers",
    "perceiver_layers",
    "perceiver_heads",
    "audio_stop_targets",
    "dvae_width",
    "dvae_code_width",
    "decoder_width",
    "speaker_width",
)
_MOST_LAYERS = 1000
"""XTTS v2 has 30. A file from anywhere may not make a network of as many as it likes."""

ModelSize = Literal["tiny", "small", "normal", "big"]
DecoderKind = str
"""A name of `myxtts.config.parts.DECODERS`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """XTTS: DVAE, conditioning, GPT, speaker encoder and HiFi-GAN."""

    model_size: ModelSize = "normal"
    """Preset of the model's sizes: tiny trains on a CPU, big is XTTS v2."""

    text_vocab: int = field(default=NOT_GIVEN)
    """Entries of the text embedding; the tokenizer's size replaces it when a run starts from scratch."""

    audio_codes: int = field(default=NOT_GIVEN)
    """Entries of the DVAE's codebook."""

    gpt_layers: int = field(default=NOT_GIVEN)
    """Transformer blocks of the GPT."""

    gpt_width: int = field(default=NOT_GIVEN)
    """Width of the GPT; must be a multiple of gpt_heads."""

    gpt_heads: int = field(default=NOT_GIVEN)
    """Attention heads of a GPT block."""

    max_text_tokens: int = field(default=NOT_GIVEN)
    """Longest text, in tokens, that the GPT has positions for."""

    max_audio_tokens: int = field(default=NOT_GIVEN)
    """Longest audio, in codes (21.5 a second), that the GPT has positions for."""

    conditioning_latents: int = field(default=NOT_GIVEN)
    """Vectors that the perceiver makes of a reference clip."""

    conditioning_layers: int = field(default=NOT_GIVEN)
    """Attention blocks that read the reference clip's mel."""

    perceiver_layers: int = field(default=NOT_GIVEN)
    """Perceiver layers between the conditioning encoder and its latents."""

    perceiver_heads: int = field(default=NOT_GIVEN)
    """Attention heads of a perceiver layer, 64 wide each."""

    text_start_token: int = 2
    """Token before every text; XTTS v2's vocabulary has it at 261."""

    text_stop_token: int = 3
    """Token after every text; XTTS v2's vocabulary has it at 0."""

    attend_text_stop: bool = True
    """Let audio attend to the text's stop token while training; XTTS v2 was trained without, and speaks with it."""

    audio_stop_targets: int = 1
    """Stop tokens after a clip's codes that count in the loss; XTTS v2 was trained with 4."""

    normed_conditioning: bool = False
    """Divide a reference's mel by the DVAE's scale of each channel, as XTTS v2 does."""

    dvae_width: int = field(default=NOT_GIVEN)
    """Channels of the DVAE at the rate of the codes; half as many at twice that rate."""

    dvae_code_width: int = field(default=NOT_GIVEN)
    """Width of a codebook entry."""

    voice_width: int = 0
    """Width of a voice vector that tells the decoders of codes how the reference sounds; 0 for none, as in XTTS v2."""

    mel_frame_blocks: int = 0
    """Residual blocks of the mel decoder at the rate of the mel's frames; 0 for none."""

    pitch_predictor: bool = False
    """Let the mel decoder predict the pitch too, for the source-filter vocoder; without it, Griffin-Lim speaks."""

    decoder: DecoderKind = field(default=NOT_GIVEN)
    """What stage decoder trains: hifigan, a vocoder for GPUs, or mel, a mel decoder that trains in
    minutes on a CPU."""

    decoder_width: int = field(default=NOT_GIVEN)
    """Channels at the start of HiFi-GAN's upsampling."""

    speaker_width: int = field(default=NOT_GIVEN)
    """Width of the speaker vector."""

    dropout: float = 0.1
    """Share of activations dropped in the GPT while it trains."""

    @property
    def decoder_parts(self) -> tuple[str, ...]:
        """The networks of its decoder; the one that makes speech is last."""
        return DECODERS[self.decoder].parts

    @property
    def parts(self) -> tuple[str, ...]:
        """All of its networks, in the order in which they are built and a voice has them."""
        return (*CORE_PARTS, *self.decoder_parts)

    @property
    def max_clip_codes(self) -> int:
        """Codes of the longest clip to train on. Stop targets take positions too; the GPT has 3 beside the codes."""
        return self.max_audio_tokens - max(0, self.audio_stop_targets - 3)

    def __post_init__(self) -> None:
        fill(self, preset(MODEL_SIZES, "--model-size", self.model_size))
        if self.decoder not in DECODERS:
            raise unknown_name(shown("decoder"), self.decoder, DECODERS)
        for name in _COUNTS:
            at_least(shown(name), getattr(self, name), 1, hint="see --model-size for sizes that work")
        for name in ("gpt_layers", "conditioning_layers", "perceiver_layers", "mel_frame_blocks"):
            in_range(shown(name), getattr(self, name), 0, _MOST_LAYERS, hint="see --model-size for sizes that work")
        at_least(shown("voice_width"), self.voice_width, 0, hint="0 for one speaker, 128 for many")
        at_least(shown("mel_frame_blocks"), self.mel_frame_blocks, 0, hint="0 for none, 2 for clearer mels")
        in_range(shown("dropout"), self.dropout, 0.0, 0.9, hint="the default is 0.1")
        if self.gpt_width % self.gpt_heads:
            raise ConfigError(
                f"{shown('gpt_width')} is {self.gpt_width}, not a multiple of gpt_heads {self.gpt_heads}",
                hint="64 a head is usual: width 512 with 8 heads",
            )
        for name in ("text_start_token", "text_stop_token"):
            hint = "it must be a row of the text embedding"
            in_range(shown(name), getattr(self, name), 0, self.text_vocab - 1, hint=hint)
