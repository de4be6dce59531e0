"""A published XTTS v2 folder (model.pth, dvae.pth, mel_stats.pth, config.json) as our configuration and weights.

Sizes come from config.json; what our model cannot vary is checked against it, not assumed. Runs no code of the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.audio.mel import N_MELS
from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.errors import CheckpointError, ConfigError
from myxtts.models.coqui import gpt, hifigan, speaker
from myxtts.models.coqui.dvae import dvae_weights
from myxtts.models.coqui.mapping import Weights, under
from myxtts.models.coqui.reader import read_pth, state_dict
from myxtts.models.hifigan_sizes import HOP_SAMPLES, INPUT_SAMPLE_RATE, OUTPUT_SAMPLE_RATE

XTTS_SAMPLING: dict[str, Any] = {"temperature": 0.75, "top_k": 50, "top_p": 0.85, "repetition_penalty": 5.0}
NEEDED = ("model.pth", "dvae.pth", "config.json", "vocab.json")
_SIZES = {
    "gpt_layers": "gpt_layers",
    "gpt_width": "gpt_n_model_channels",
    "gpt_heads": "gpt_n_heads",
    "max_text_tokens": "gpt_max_text_tokens",
    "max_audio_tokens": "gpt_max_audio_tokens",
    "speaker_width": "d_vector_dim",
}
"""Our setting, and the field of `model_args` that it comes from."""
_FIXED = {
    "gpt_use_perceiver_resampler": True,
    "gpt_code_stride_len": 4 * HOP_SAMPLES,
    "input_sample_rate": INPUT_SAMPLE_RATE,
    "output_sample_rate": OUTPUT_SAMPLE_RATE,
    "output_hop_length": HOP_SAMPLES,
    "cond_d_vector_in_each_upsampling_layer": True,
}
"""Fields of `model_args` that have one value in XTTS v2; another one is another architecture."""
_NO_NUMBER = 1e9
SPECIAL_AUDIO_TOKENS = 2
"""Start and stop, behind the codes."""
_TRAINER_ONLY = ("torch_mel_spectrogram_style_encoder.", "torch_mel_spectrogram_dvae.", "dvae.")


def read_folder(
    folder: str | Path, *, text_start_token: int, text_stop_token: int
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Sizes, and all weights of `XTTS` by path. The two tokens are those of the folder's vocab.json."""
    folder = Path(folder)
    absent = [name for name in NEEDED if not (folder / name).is_file()]
    if absent:
        raise CheckpointError(
            f"{folder} has no {', '.join(absent)}", hint=f"an XTTS v2 folder holds {', '.join(NEEDED)}, mel_stats.pth"
        )
    content = _read_json(folder / "config.json")
    state = _without_trainer(state_dict(read_pth(folder / "model.pth"), folder / "model.pth"))
    codec = state_dict(read_pth(folder / "dvae.pth"), folder / "dvae.pth")
    mel_stats_M = _mel_stats(folder, state)
    sizes = sizes_of(state, codec)
    config = model_config(content, text_start_token=text_start_token, text_stop_token=text_stop_token, **sizes)
    gpt_state = under(gpt.PREFIX, state)
    weights = {
        **gpt.gpt_weights(gpt_state, config),
        **hifigan.hifigan_weights(under(hifigan.PREFIX, state)),
        **speaker.speaker_weights(under(speaker.PREFIX, state)),
        **dvae_weights(codec, mel_stats_M),
    }
    return config, weights


def sampling_of(folder: Path) -> Sampling:
    """How the published voice samples its codes; where config.json does not say, as XTTS v2 does.

    Raises `ConfigError` for a setting that is no number or out of range.
    """
    content = _read_json(folder / "config.json")
    given = {name: content.get(name, usual) for name, usual in XTTS_SAMPLING.items()}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _NO_NUMBER:
            raise ConfigError(f"config.json: {name} is {value!r}, must be a number", hint="download it again")
    return Sampling(**{**given, "top_k": int(given["top_k"])})


def sizes_of(state: Weights, codec: Weights) -> dict[str, int]:
    """Sizes that config.json does not give, or gives before fine-tuning changed them, from the weights themselves."""
    by_weight: dict[str, tuple[Weights, str, int]] = {
        "text_vocab": (state, "gpt.text_embedding.weight", 0),
        "audio_codes": (codec, "codebook.embed", 1),
        "dvae_width": (codec, "encoder.1.0.weight", 0),
        "dvae_code_width": (codec, "codebook.embed", 0),
        "decoder_width": (state, f"{hifigan.PREFIX}conv_pre.weight", 0),
    }
    sizes = {}
    for setting, (weights, name, axis) in by_weight.items():
        if name not in weights or weights[name].ndim <= axis:
            raise CheckpointError(f"the checkpoint has no {name}", hint="is this an XTTS v2 model?")
        sizes[setting] = int(weights[name].shape[axis])
    return sizes


def model_config(content: dict[str, Any], **known: Any) -> ModelConfig:
    """Our settings from the content of config.json, beside those that are known already."""
    arguments = content.get("model_args")
    if not isinstance(arguments, dict):
        raise ConfigError(
            "config.json has no model_args", hint="use the config.json that is published beside model.pth"
        )
    for name, expected in {**_FIXED, "gpt_num_audio_tokens": known["audio_codes"] + SPECIAL_AUDIO_TOKENS}.items():
        if arguments.get(name, expected) != expected:
            raise ConfigError(
                f"config.json: {name} is {arguments[name]}, must be {expected}",
                hint="only XTTS v2 (2.0.0 to 2.0.3) and models fine-tuned from it can be imported",
            )
    lacking = [name for name in _SIZES.values() if not isinstance(arguments.get(name), int)]
    if lacking:
        raise ConfigError(
            f"config.json: model_args lacks {', '.join(lacking)}",
            hint="use the config.json that is published beside model.pth",
        )
    sizes = {ours: arguments[theirs] for ours, theirs in _SIZES.items()}
    return ModelConfig(
        model_size="big", attend_text_stop=False, audio_stop_targets=4, normed_conditioning=True, **sizes, **known
    )


def _without_trainer(state: Weights) -> dict[str, np.ndarray]:
    """Names as in a published file: a trainer's checkpoint puts `xtts.` before them, and stores more than the model."""
    plain = {name.removeprefix("xtts."): value for name, value in state.items()}
    return {name: value for name, value in plain.items() if not name.startswith(_TRAINER_ONLY)}


def _mel_stats(folder: Path, state: Weights) -> np.ndarray:
    path = folder / "mel_stats.pth"
    stats = read_pth(path) if path.is_file() else state.get("mel_stats")
    if not isinstance(stats, np.ndarray) or stats.size != N_MELS:
        raise CheckpointError(
            f"{folder} has no mel statistics for {N_MELS} channels",
            hint="put the published mel_stats.pth into the folder",
        )
    return stats


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="download it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds no JSON object", hint="download it again")
    return content
