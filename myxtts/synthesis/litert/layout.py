"""What an exported voice consists of: its LiteRT files and tables by name, each with the sizes that it must have.

Exporting makes these, opening accepts nothing else. One more network of a voice, or one more input of a decoder, is a
line here, its function in `export` and its call in `model` or `decoding`; one more decoder is a line in `_DECODERS`
of each. Sizes: T mel frames, N codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from myxtts.audio.mel import N_MELS, SPEAKER_MEL
from myxtts.config import parts as known
from myxtts.config.model import ModelConfig
from myxtts.config.parts import decoder_of
from myxtts.errors import SynthesisError
from myxtts.synthesis.manifest import VoiceManifest

Entry = TypeVar("Entry")
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
    width = config.gpt_width
    found = {gpt_segment(number): _segment_sizes(config, number) for number in range(config.gpt_layers + 1)}
    found[CONDITIONING] = Sizes([(1, None, N_MELS)], [(1, config.conditioning_latents, width)])
    return found | of_decoder(_DECODERS, manifest.parts)(config, manifest)


def can_export(parts: Collection[str]) -> bool:
    """Whether the decoder that a voice with these parts speaks with has files here."""
    return decoder_of(parts).name in _DECODERS


def of_decoder(table: Mapping[str, Entry], parts: Collection[str]) -> Entry:
    """What the table has for the decoder that a voice with these parts speaks with."""
    decoder = decoder_of(parts)
    if decoder.name not in table:
        raise SynthesisError(
            f"a voice that speaks with decoder {decoder.name} cannot be exported for LiteRT",
            hint="speak with --runtime tensorflow",
        )
    return table[decoder.name]


def _mel(config: ModelConfig, manifest: VoiceManifest) -> dict[str, Sizes]:
    voice, vectors, mel = _read_and_made(config)
    text: list[Shape] = [(1, None), (1, None)] if manifest.alignment_heads else []
    pitch: list[Shape] = [(1, None)] if config.pitch_predictor else []
    sizes = Sizes([*voice, vectors, (1, None, config.gpt_width), *text], [mel, *pitch])
    return {MEL_DECODER: sizes} | _voice_encoder(config)


def _codec(config: ModelConfig, manifest: VoiceManifest) -> dict[str, Sizes]:
    voice, vectors, mel = _read_and_made(config)
    return {DVAE: Sizes([*voice, vectors], [mel])} | _voice_encoder(config)


def _hifigan(config: ModelConfig, manifest: VoiceManifest) -> dict[str, Sizes]:
    speaker: Shape = (1, config.speaker_width)
    return {
        SPEAKER_ENCODER: Sizes([(1, None, SPEAKER_MEL.n_mels)], [speaker]),
        HIFIGAN: Sizes([(1, None, config.gpt_width), speaker], [(1, None)]),
    }


def _voice_encoder(config: ModelConfig) -> dict[str, Sizes]:
    voice, _, mel = _read_and_made(config)
    return {VOICE_ENCODER: Sizes([mel], voice)} if voice else {}


def _read_and_made(config: ModelConfig) -> tuple[list[Shape], Shape, Shape]:
    """Of decoders that make mels of codes: the voice vector where there is one, the codes' vectors, the mel."""
    voice: list[Shape] = [(1, config.voice_width)] if config.voice_width else []
    return voice, (1, None, config.dvae_code_width), (1, None, N_MELS)


_DECODERS = {known.MEL.name: _mel, known.HIFIGAN.name: _hifigan, known.CODEC.name: _codec}


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
    if decoder_of(parts).mel_part is not None:
        found |= {"codebook": (config.audio_codes, config.dvae_code_width)}
        found |= {"mel_shift": (N_MELS,), "mel_scale": (N_MELS,)}
    if config.normed_conditioning:
        found["conditioning_scale"] = (N_MELS,)
    return found
