"""A published XTTS v2 folder (model.pth, dvae.pth, mel_stats.pth, config.json) as our configuration and weights.

Sizes come from config.json; what our model cannot vary is checked against it, not assumed. Runs no code of the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.model import ModelConfig
from myxtts.errors import CheckpointError, ConfigError
from myxtts.models.coqui import gpt, hifigan, speaker
from myxtts.models.coqui.dvae import dvae_weights
from myxtts.models.coqui.mapping import Weights, under
from myxtts.models.coqui.reader import read_pth, state_dict
from myxtts.models.hifigan import HOP_SAMPLES, INPUT_SAMPLE_RATE, OUTPUT_SAMPLE_RATE

NEEDED = ("model.pth", "dvae.pth", "config.json", "vocab.json")
_SIZES = {
    "gpt_layers": "gpt_layers",
    "gpt_width": "gpt_n_model_channels",
    "gpt_heads": "gpt_n_heads",
    "text_vocab": "gpt_number_text_tokens",
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
_TRAINER_ONLY = ("torch_mel_spectrogram_style_encoder.", "torch_mel_spectrogram_dvae.", "dvae.")


def read_folder(folder: str | Path) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Sizes, and all weights of `XTTS` by path."""
    folder = Path(folder)
    absent = [name for name in NEEDED if not (folder / name).is_file()]
    if absent:
        raise CheckpointError(
            f"{folder} has no {', '.join(absent)}", hint=f"an XTTS v2 folder holds {', '.join(NEEDED)}, mel_stats.pth"
        )
    config = model_config(_read_json(folder / "config.json"))
    state = _without_trainer(state_dict(read_pth(folder / "model.pth"), folder / "model.pth"))
    mel_stats_M = _mel_stats(folder, state)
    gpt_state = under(gpt.PREFIX, state)
    _check_vocabularies(gpt_state, config)
    codec = state_dict(read_pth(folder / "dvae.pth"), folder / "dvae.pth")
    weights = {
        **gpt.gpt_weights(gpt_state, config),
        **hifigan.hifigan_weights(under(hifigan.PREFIX, state)),
        **speaker.speaker_weights(under(speaker.PREFIX, state)),
        **dvae_weights(codec, mel_stats_M),
    }
    return config, weights


def model_config(content: dict[str, Any]) -> ModelConfig:
    """Our sizes from the content of config.json."""
    arguments = content.get("model_args")
    if not isinstance(arguments, dict):
        raise ConfigError("config.json has no model_args", hint="use the config.json that is published beside model.pth")
    for name, expected in _FIXED.items():
        if arguments.get(name, expected) != expected:
            raise ConfigError(
                f"config.json: {name} is {arguments[name]}, XTTS v2 has {expected}",
                hint="only XTTS v2 (2.0.0 to 2.0.3) and models fine-tuned from it can be imported",
            )
    lacking = [name for name in (*_SIZES.values(), "gpt_num_audio_tokens") if not isinstance(arguments.get(name), int)]
    if lacking:
        raise ConfigError(
            f"config.json: model_args lacks {', '.join(lacking)}",
            hint="use the config.json that is published beside model.pth",
        )
    sizes = {ours: arguments[theirs] for ours, theirs in _SIZES.items()}
    # Two of the audio tokens are start and stop.
    return ModelConfig(model_size="big", audio_codes=arguments["gpt_num_audio_tokens"] - 2, **sizes)


def _without_trainer(state: Weights) -> dict[str, np.ndarray]:
    """Names as in a published file: a trainer's checkpoint puts `xtts.` before them, and stores more than the model."""
    plain = {name.removeprefix("xtts."): value for name, value in state.items()}
    return {name: value for name, value in plain.items() if not name.startswith(_TRAINER_ONLY)}


def _mel_stats(folder: Path, state: Weights) -> np.ndarray:
    path = folder / "mel_stats.pth"
    stats = read_pth(path) if path.is_file() else state.get("mel_stats")
    if not isinstance(stats, np.ndarray) or stats.size != 80:
        raise CheckpointError(
            f"{folder} has no mel statistics for 80 channels", hint="put the published mel_stats.pth into the folder"
        )
    return stats


def _check_vocabularies(gpt_state: Weights, config: ModelConfig) -> None:
    for name, setting, rows in (
        ("text_embedding.weight", "gpt_number_text_tokens", config.text_vocab),
        ("mel_embedding.weight", "gpt_num_audio_tokens", config.audio_codes + 2),
    ):
        if name in gpt_state and gpt_state[name].shape[0] != rows:
            raise CheckpointError(
                f"model.pth: {name} has {gpt_state[name].shape[0]} rows, config.json says {setting} {rows}",
                hint="model.pth and config.json must be of the same model",
            )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="download it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds no JSON object", hint="download it again")
    return content
