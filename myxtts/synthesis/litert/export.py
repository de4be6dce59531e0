"""`export_litert`: a voice's networks as LiteRT files, for speaking without TensorFlow. Needs TensorFlow itself.

With int8, weights are stored and multiplied in 8 bits (dynamic range: activations are quantised row by row as they
come), with f16 they are stored in 16 bits and computed with in 32. Sizes in names: R rows, D width, V audio
vocabulary, T mel frames, N codes, C width of a code.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.lite.python.convert_phase import ConverterError

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.parts import CODEC, HIFIGAN, MEL, decoder_of
from myxtts.errors import CheckpointError, SynthesisError
from myxtts.files import make_folder, writing
from myxtts.models.gpt import GPT, Block
from myxtts.models.hifigan import portable_convolutions
from myxtts.models.layers import MASKED, LayerNorm, Linear, gelu_forward, normalised
from myxtts.models.mel_decoder import SpokenText, outputs_of
from myxtts.models.weights import read_manifest
from myxtts.synthesis.litert import layout
from myxtts.synthesis.litert.folder import Weights, read_tables, write_manifest, write_tables
from myxtts.synthesis.litert.network import Network
from myxtts.synthesis.references import SPEAKERS_FILE
from myxtts.synthesis.voice import (
    ALIGNER_FILE,
    CONFIG_FILE,
    TOKENIZER_FILE,
    Voice,
    build_voice,
    find_voice,
    missing_to_speak,
    read_voice,
    refuse_exported,
    trained_on_all_clips,
)

Function = Callable[..., Any]
_INTEGERS = (1, None)
"""Shape of token and place inputs, the only ones that are not floats."""


def export_litert(source: str | Path, out: Path, *, weights: Weights = "int8") -> Path:
    """Write the voice of a run or a voice folder to `out`, which appears when all of it is there, and return it.

    Raises `SynthesisError` for a voice that cannot speak yet.
    """
    folder = find_voice(source)
    refuse_exported(folder)
    voice = read_voice(folder)
    if missing := missing_to_speak(voice.manifest.parts):
        raise SynthesisError(
            f"the voice in {folder} cannot speak yet: it has no {missing[0]}", hint="train its gpt stage too"
        )
    parts = build_voice(folder, voice.config.model)
    with writing(out):
        make_folder(out.parent)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as made:
            place = Path(made) / "voice"
            place.mkdir()
            _write(place, folder, voice, parts, weights)
            if out.is_dir():
                shutil.rmtree(out)
            place.replace(out)
    return out


def _write(place: Path, folder: Path, voice: Voice, parts: Any, weights: Weights) -> None:
    config, manifest = voice.config.model, voice.manifest
    functions = _functions(parts, config.gpt_layers, manifest.parts, bool(manifest.alignment_heads))
    for name, sizes in layout.networks(config, manifest).items():
        (place / name).write_bytes(_converted(functions[name], sizes, weights))
        Network(place / name, sizes)
    arrays = _tables(parts, layout.tables(config, manifest.parts))
    if weights != "f32":
        arrays = {name: array.astype(np.float16) if array.ndim == 2 else array for name, array in arrays.items()}
    write_tables(place, arrays)
    read_tables(place, layout.tables(config, manifest.parts))
    # Settings of the training would tell of folders on the machine that trained it.
    data = DataConfig(
        language=voice.config.data.language,
        text_frontend=voice.tokenizer.frontend,
        normalise_loudness=voice.config.data.normalise_loudness,
    )
    XTTSConfig(model=config, data=data).to_yaml(place / CONFIG_FILE)
    voice.tokenizer.save(place / TOKENIZER_FILE)
    for name in (SPEAKERS_FILE, ALIGNER_FILE):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, place / name)
    manifest = replace(manifest, trained_on_all_clips=trained_on_all_clips(folder))
    write_manifest(place, weights, read_manifest(folder).sha256, manifest)


def _tables(parts: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    gpt = parts.gpt
    sources: dict[str, Callable[[], Any]] = {
        "text_embedding": lambda: gpt.text_embedding.table,
        "text_position": lambda: gpt.text_position.table,
        "audio_embedding": lambda: gpt.audio_embedding.table,
        "audio_position": lambda: gpt.audio_position.table,
        "codebook": lambda: parts.dvae.codebook.vectors_KC,
        "mel_shift": lambda: getattr(parts, str(decoder_of(vars(parts)).mel_part)).mel_shift_M,
        "mel_scale": lambda: getattr(parts, str(decoder_of(vars(parts)).mel_part)).mel_scale_M,
        "conditioning_scale": lambda: parts.dvae.mel_scale_M,
    }
    return {name: sources[name]().numpy() for name in shapes}


def _functions(parts: Any, layers: int, names: tuple[str, ...], with_text: bool) -> dict[str, Function]:
    """What each file computes."""
    found: dict[str, Function] = {
        layout.gpt_segment(number): _segment(parts.gpt, number) for number in range(layers + 1)
    }
    found[layout.CONDITIONING] = lambda mel_1TM: parts.conditioning(mel_1TM)
    return found | layout.of_decoder(_DECODERS, names)(parts, with_text)


def _codec(parts: Any, with_text: bool) -> dict[str, Function]:
    dvae, voiced = parts.dvae, parts.dvae.voice is not None

    def run(*inputs: tf.Tensor) -> tf.Tensor:
        vectors_1NC, voice_1V = inputs[-1], inputs[0] if voiced else None
        scaled_1TM = dvae.decoder(vectors_1NC, tf.shape(vectors_1NC)[1:2], voice_1V)
        return scaled_1TM * dvae.mel_scale_M + dvae.mel_shift_M

    return {layout.DVAE: run, layout.VOICE_ENCODER: _voice_encoder(dvae)}


def _mel(parts: Any, with_text: bool) -> dict[str, Function]:
    mel_decoder, voiced = parts.mel_decoder, parts.dvae.voice is not None

    def run(*inputs: tf.Tensor) -> list[tf.Tensor]:
        voice_1V = inputs[0] if voiced else None
        vectors_1NC, latents_1ND, *text = inputs[voiced:]
        placed = SpokenText(text[0], tf.shape(text[0])[1:], text[1]) if with_text else None
        return outputs_of(mel_decoder(vectors_1NC, latents_1ND, tf.shape(vectors_1NC)[1:2], placed, voice_1V))

    return {layout.MEL_DECODER: run, layout.VOICE_ENCODER: _voice_encoder(parts.dvae)}


def _voice_encoder(dvae: Any) -> Function:
    return lambda mel_1TM: dvae.voice_of(mel_1TM, tf.shape(mel_1TM)[1:2])


def _hifigan(parts: Any, with_text: bool) -> dict[str, Function]:
    return {
        layout.SPEAKER_ENCODER: lambda mel_1TF: parts.speaker_encoder.from_log_mel(mel_1TF, tf.shape(mel_1TF)[1:2]),
        layout.HIFIGAN: parts.hifigan.from_frames,
    }


_DECODERS = {MEL.name: _mel, HIFIGAN.name: _hifigan, CODEC.name: _codec}


def _segment(gpt: GPT, number: int) -> Function:
    """From what the attention before found to the query, key and value of the next, or to the logits."""
    before: Block | None = gpt.blocks[number - 1] if number else None
    after: Block | None = gpt.blocks[number] if number < len(gpt.blocks) else None

    def run(x_RD: tf.Tensor, *found_RD: tf.Tensor) -> Any:
        if before is not None:
            x_RD += _product(found_RD[0], before.attention_out)
            fed = gelu_forward(_product(_norm(x_RD, before.feed_norm), before.up))
            x_RD += _product(fed, before.down)
        if after is None:
            latent_RD = _norm(_norm(x_RD, gpt.last_norm), gpt.head_norm)
            # The start token is no code: nothing could decode it.
            never_V = tf.one_hot(gpt.audio_start, gpt.audio_vocab, MASKED)
            return latent_RD, _product(latent_RD, gpt.audio_head) + never_V
        width, head_width = x_RD.shape[-1], x_RD.shape[-1] // after.heads
        scale = np.concatenate([np.full(width, head_width**-0.5), np.ones(2 * width)]).astype(np.float32)
        kernel_DE, bias_E = (tf.convert_to_tensor(weight) * scale for weight in (after.qkv.kernel, after.qkv.bias))
        qkv_RE = tf.matmul(_norm(x_RD, after.attention_norm), kernel_DE) + bias_E
        return qkv_RE if before is None else (x_RD, qkv_RE)

    return run


def _product(x_RD: tf.Tensor, layer: Linear) -> tf.Tensor:
    return tf.matmul(x_RD, layer.kernel) + layer.bias


def _norm(x_RD: tf.Tensor, layer: LayerNorm) -> tf.Tensor:
    return normalised(x_RD, layer.gamma, layer.beta, layer.epsilon)


def _converted(function: Function, sizes: layout.Sizes, weights: Weights) -> bytes:
    specs = [
        tf.TensorSpec(shape, tf.int32 if shape == _INTEGERS else tf.float32, name=f"input_{number}")
        for number, shape in enumerate(sizes.inputs)
    ]
    logging.getLogger("absl").setLevel(logging.ERROR)
    with portable_convolutions():
        traced = tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced])
    if weights != "f32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if weights == "f16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        return bytes(converter.convert())
    except (ConverterError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"the voice has a network that LiteRT cannot run: {str(error).splitlines()[0][:200]}",
            hint="speak with --runtime tensorflow, and tell us about the voice",
        ) from error
