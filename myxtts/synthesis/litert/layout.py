"""What an exported voice consists of: its LiteRT files and tables by name, each with the sizes that it must have.

Exporting makes these, opening accepts nothing else. One more network of a voice, or one more input of a decoder, is a
line here, its function in `export` and its call in `model` or `decoding`. Sizes: T mel frames, N codes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from myxtts.audio.mel import N_MELS, SPEAKER_MEL
from myxtts.config.model import ModelConfig
from myxtts.synthesis.manifest import VoiceManifest

Shape = tuple[int | None, ...]
"""None for a size that is free."""

CONDITIONING = "conditioning.tflite"
DVAE = "dvae.tflite"
MEL_DECODER = "mel_decoder.tflite"
VOICE_ENCODER = "voice_encoder.tflite"
SPEAKER_ENCODER = "speaker_encoder.tflite"
HIFIGAN = "hifigan.tflite"


class Sizes(NamedTuple):
    """Of a network's inputs and outputs, in order."""

    inputs: list[Shape]
    outputs: list[Shape]


def gpt_segment(number: int) -> str:
    """The file between the attention of GPT block `number` (counted from 1; 0 is before the first) and the next."""
    return f"gpt_{number:02d}.tflite"


def networks(config: ModelConfig, manifest: VoiceManifest) -> dict[str, Sizes]:
    """The files of a voice with these parts."""
    width, parts = config.gpt_width, manifest.parts
    found = {gpt_segment(number): _segment_sizes(config, number) for number in range(config.gpt_layers + 1)}
    found[CONDITIONING] = Sizes([(1, None, N_MELS)], [(1, config.conditioning_latents, width)])
    vectors: Shape = (1, None, config.dvae_code_width)
    mel: Shape = (1, None, N_MELS)
    decoder = mel_decoder_of(parts)
    voice: list[Shape] = [(1, config.voice_width)] if config.voice_width else []
    if decoder == "mel_decoder":
        text: list[Shape] = [(1, None), (1, None)] if manifest.alignment_heads else []
        pitch: list[Shape] = [(1, None)] if config.pitch_predictor else []
        found[MEL_DECODER] = Sizes([*voice, vectors, (1, None, width), *text], [mel, *pitch])
    elif decoder == "dvae":
        found[DVAE] = Sizes([*voice, vectors], [mel])
    if decoder and voice:
        found[VOICE_ENCODER] = Sizes([mel], voice)
    if decoder is None:
        found[SPEAKER_ENCODER] = Sizes([(1, None, SPEAKER_MEL.n_mels)], [(1, config.speaker_width)])
        found[HIFIGAN] = Sizes([(1, None, width), (1, config.speaker_width)], [(1, None)])
    return found


def _segment_sizes(config: ModelConfig, number: int) -> Sizes:
    hidden: Shape = (None, config.gpt_width)
    made: Shape = (None, 3 * config.gpt_width)
    if number == 0:
        return Sizes([hidden], [made])
    if number == config.gpt_layers:
        made = (None, config.audio_codes + 2)
    return Sizes([hidden, hidden], [hidden, made])


def tables(config: ModelConfig, parts: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The arrays that NumPy reads, by name, with their shapes."""
    width = config.gpt_width
    found: dict[str, tuple[int, ...]] = {
        "text_embedding": (config.text_vocab, width),
        "text_position": (config.max_text_tokens + 2, width),
        "audio_embedding": (config.audio_codes + 2, width),
        "audio_position": (config.max_audio_tokens + 3, width),
    }
    if mel_decoder_of(parts):
        found |= {"codebook": (config.audio_codes, config.dvae_code_width)}
        found |= {"mel_shift": (N_MELS,), "mel_scale": (N_MELS,)}
    if config.normed_conditioning:
        found["conditioning_scale"] = (N_MELS,)
    return found


def mel_decoder_of(parts: Collection[str]) -> str | None:
    """The part whose mels are spoken; None where HiFi-GAN speaks."""
    if {"hifigan", "speaker_encoder"} <= set(parts):
        return None
    return "mel_decoder" if "mel_decoder" in parts else "dvae"
