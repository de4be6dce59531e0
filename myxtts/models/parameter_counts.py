"""How many numbers each part of a model has, from its sizes alone: memory is estimated before TensorFlow is loaded.

Counted as the layers declare them; `tests/contract/test_parameter_counts.py` holds every count against the built part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from myxtts.config.model import ModelConfig

_MELS = 80
_PERCEIVER_HEAD = 64
_VOICE_CHANNELS = 192


@dataclass(frozen=True)
class Count:
    """Numbers of a part: those that learn, and those that only stay."""

    trained: int
    kept: int = 0

    @property
    def all(self) -> int:
        return self.trained + self.kept

    def __add__(self, other: Count) -> Count:
        return Count(self.trained + other.trained, self.kept + other.kept)


def counted(parts: Iterable[str]) -> tuple[str, ...]:
    """Those of the parts that have a count here; how many numbers another has is known once it is built."""
    return tuple(part for part in parts if part in _PARTS)


def count_of(part: str, model: ModelConfig) -> Count:
    """The numbers of a part that is `counted`."""
    return _PARTS[part](model)


def _gpt(model: ModelConfig) -> Count:
    width, text, audio = model.gpt_width, model.text_vocab, model.audio_codes + 2
    tables = text + audio + model.max_text_tokens + 2 + model.max_audio_tokens + 3
    block = 12 * width**2 + 13 * width
    heads = (width + 1) * (text + audio)
    return Count(tables * width + model.gpt_layers * block + 4 * width + heads)


def _conditioning(model: ModelConfig) -> Count:
    width, inner = model.gpt_width, model.perceiver_heads * _PERCEIVER_HEAD
    hidden = int(width * 4 * 2 / 3)
    block = 4 * width**2 + 6 * width
    perceiver = 4 * width * inner + 2 * hidden * (width + 1) + (hidden + 1) * width
    latents = model.conditioning_latents * width
    blocks = model.conditioning_layers * block + model.perceiver_layers * perceiver
    return Count((_MELS + 1) * width + blocks + latents + width)


def _dvae(model: ModelConfig) -> Count:
    width, codes, code_width = model.dvae_width, model.audio_codes, model.dvae_code_width
    encoder = _conv(_MELS, width // 2, 3) + _conv(width // 2, width, 3) + 3 * _residual(width)
    codebook = 2 * codes * code_width + 2 * codes + 1
    made = _mel_maker(width, code_width) + _voiced(model) + _voice_encoder(model)
    return Count(encoder + _conv(width, code_width) + made, codebook + 2 * _MELS)


def _mel_decoder(model: ModelConfig) -> Count:
    width = model.dvae_width
    reader = model.text_vocab * width + 2 * _conv(width, width, 5)
    mixed = 3 * width**2 + 5 * model.gpt_width * width + 2 * _residual(width)
    made = _mel_maker(width, model.dvae_code_width) + _voiced(model) + model.mel_frame_blocks * _residual(width // 2)
    if model.pitch_predictor:
        half = width // 2
        made += 2 * _conv(half, half, 5) + _conv(half, 2) + 3 * (_MELS + 2) * half
    return Count(reader + mixed + made, 2 * _MELS)


def _hifigan(model: ModelConfig) -> Count:
    width, speaker = model.decoder_width, model.speaker_width
    total = _conv(model.gpt_width, width, 7) + _conv(speaker, width)
    for rate in (8, 8, 2, 2):
        half = width // 2
        blocks = sum(6 * _conv(half, half, kernel) for kernel in (3, 7, 11))
        total += 2 * width * rate * half + half + _conv(speaker, half) + blocks
        width = half
    return Count(total + 7 * width)


def _speaker_encoder(model: ModelConfig) -> Count:
    widths, blocks, pooled = (32, 64, 128, 256), (3, 4, 6, 3), 256 * 64 // 8
    total = _conv(1, 32, 9) + _norm(32)
    before = 32
    for width, count in zip(widths, blocks, strict=True):
        for _ in range(count):
            gate = _conv(width, width // 8) + _conv(width // 8, width)
            shortcut = before * width + _norm(width) if before != width else 0
            total += 9 * width * (before + width) + 2 * _norm(width) + gate + shortcut
            before = width
    total += _conv(pooled, 128) + _norm(128) + _conv(128, pooled) + _conv(2 * pooled, model.speaker_width)
    moving = 2 * (
        32 + 128 + sum(2 * width * count for width, count in zip(widths, blocks, strict=True)) + sum(widths[1:])
    )
    return Count(total, moving)


def wave_discriminators(shrink: int) -> Count:
    """HiFi-GAN's, with all widths divided by `shrink`."""
    widths = [max(width // shrink, 4) for width in (32, 128, 512, 1024)]
    chain = [1, *widths, widths[-1]]
    period = sum(_conv(a, b, 5) for a, b in pairwise(chain)) + _conv(chain[-1], 1, 3)
    width = max(32 // shrink, 4)
    spectrum = _conv(1, width, 27) + 3 * _conv(width, width, 27) + _conv(width, width, 9) + _conv(width, 1, 9)
    return Count(5 * period + 3 * spectrum)


def mel_discriminator() -> Count:
    chain = [1, 16, 32, 32, 32, 1]
    return Count(sum(_conv(a, b, 9) for a, b in pairwise(chain)))


def _conv(inputs: int, outputs: int, kernel: int = 1) -> int:
    return kernel * inputs * outputs + outputs


def _norm(width: int) -> int:
    """Of a batch norm, what learns."""
    return 2 * width


def _residual(width: int) -> int:
    return 2 * _conv(width, width, 3) + _conv(width, width)


def _mel_maker(width: int, code_width: int) -> int:
    """The DVAE's decoder."""
    up = _conv(width, width, 3) + _conv(width, width // 2, 3)
    return _conv(code_width, width) + 3 * _residual(width) + up + _conv(width // 2, _MELS)


def _voice_encoder(model: ModelConfig) -> int:
    if not model.voice_width:
        return 0
    return (
        _conv(_MELS, _VOICE_CHANNELS, 5)
        + 3 * _conv(_VOICE_CHANNELS, _VOICE_CHANNELS, 5)
        + _conv(2 * _VOICE_CHANNELS, model.voice_width)
    )


def _voiced(model: ModelConfig) -> int:
    """What tells a decoder of codes the voice."""
    width = model.dvae_width
    return 3 * _conv(model.voice_width, 2 * width) + _conv(model.voice_width, width) if model.voice_width else 0


_PARTS = {
    "dvae": _dvae,
    "conditioning": _conditioning,
    "gpt": _gpt,
    "mel_decoder": _mel_decoder,
    "speaker_encoder": _speaker_encoder,
    "hifigan": _hifigan,
}
