"""Whether a voice's settings are those of its weights: known before a network is built, from the manifest alone.

A folder comes from anywhere, and its config.yaml may ask for a network of any size. One weight tells most sizes, so
that an error can name the setting; the number of all weights tells the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from myxtts.config.model import ModelConfig
from myxtts.config.parts import refuse_unknown_parts
from myxtts.errors import CheckpointError, DamagedError
from myxtts.models.parameter_counts import count_of, counted
from myxtts.models.weights import PARTIAL_WEIGHTS, WEIGHTS_FILE, WeightsManifest

_AXES: dict[str, tuple[str, int, int]] = {
    "text_vocab": ("gpt/text_embedding/table", 0, 0),
    "gpt_width": ("gpt/text_embedding/table", 1, 0),
    "max_text_tokens": ("gpt/text_position/table", 0, 2),
    "max_audio_tokens": ("gpt/audio_position/table", 0, 3),
    "conditioning_latents": ("conditioning/latents", 0, 0),
    "audio_codes": ("dvae/codebook/vectors", 0, 0),
    "dvae_code_width": ("dvae/codebook/vectors", 1, 0),
    "dvae_width": ("dvae/encoder/down_2/bias", 0, 0),
    "speaker_width": ("speaker_encoder/out/bias", 0, 0),
    "decoder_width": ("hifigan/into/bias", 0, 0),
}
"""Setting to a weight, its axis, and by how much that is longer."""
_LAYERS = {
    "gpt_layers": "gpt/block_{}/qkv/kernel",
    "conditioning_layers": "conditioning/block_{}/qkv/kernel",
    "perceiver_layers": "conditioning/perceiver_{}/out/kernel",
}
"""Setting to a weight that every layer has."""
_PERCEIVER_HEAD = 64
_LEAST_VALUE_BYTES = 2


def refuse_other_sizes(config: ModelConfig, parts: Collection[str], stored: WeightsManifest, folder: Path) -> None:
    """Raise `CheckpointError` where the parts, built as configured, would not be of the weights' sizes."""
    refuse_unknown_parts(parts)
    found = _sizes(parts, stored.shapes, folder)
    for setting, size in found.items():
        if getattr(config, setting) != size:
            raise CheckpointError(
                f"{folder}: config.yaml has {setting} {getattr(config, setting)}, and the weights have {size}",
                hint="copy the whole folder again: the two files belong together",
            )
    for part in counted(parts):  # another's weights are compared once it is built
        own = sum(_product(shape) for name, shape in stored.shapes.items() if name.startswith(f"{part}/"))
        if own != (wanted := count_of(part, config).all):
            raise CheckpointError(
                f"{folder}: {part} has {wanted:,} weights by config.yaml, and {own:,} are stored",
                hint="copy the whole folder again: the two files belong together",
            )
    values = sum(_product(shape) for shape in stored.shapes.values())
    files = [path for name in (WEIGHTS_FILE, PARTIAL_WEIGHTS) if (path := folder / name).is_file()]
    if values * _LEAST_VALUE_BYTES > max((path.stat().st_size for path in files), default=0):
        raise DamagedError(
            f"{folder}: the manifest names {values} weights, and {WEIGHTS_FILE} has no room for them",
            hint="copy the whole folder again",
        )


def _sizes(parts: Collection[str], shapes: Mapping[str, tuple[int, ...]], folder: Path) -> dict[str, int]:
    """Each setting that a part of the voice depends on, as the weights have it."""
    sizes: dict[str, int] = {}
    for setting, (name, axis, longer) in _AXES.items():
        if name.split("/")[0] in parts:
            sizes[setting] = _length(shapes, name, axis, folder) - longer
    for setting, name in _LAYERS.items():
        if name.split("/")[0] in parts:
            sizes[setting] = next(count for count in range(len(shapes) + 1) if name.format(count + 1) not in shapes)
    if "conditioning" in parts and sizes["perceiver_layers"]:
        width = _length(shapes, "conditioning/perceiver_1/query/kernel", 1, folder)
        sizes["perceiver_heads"] = width // _PERCEIVER_HEAD
    if "conditioning" in parts and "gpt" not in parts:
        sizes["gpt_width"] = _length(shapes, "conditioning/latents", 1, folder)
    return sizes


def _length(shapes: Mapping[str, tuple[int, ...]], name: str, axis: int, folder: Path) -> int:
    shape = shapes.get(name, ())
    if len(shape) <= axis or any(type(length) is not int or length < 0 for length in shape):
        raise DamagedError(f"{folder}: the manifest has no weight {name}", hint="copy the whole folder again")
    return shape[axis]


def _product(shape: tuple[int, ...]) -> int:
    """Python's own, which does not overflow; a length that is none counts as too many."""
    product = 1
    for length in shape:
        product *= length if type(length) is int and length >= 0 else 2**63
    return product
