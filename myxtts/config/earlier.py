"""Names of version 0.1: its settings, checkpoints and voices are still read, and for one version its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from myxtts.errors import ConfigError

RENAMED = {
    "code_noise": "token_corruption",
    "listening_weight": "ctc_loss_weight",
    "mel_only_steps": "discriminator_start",
    "splice": "concatenation",
    "vary_speed": "speed_perturbation",
}
"""Settings by the name that they had."""

REMOVED: dict[str, Any] = {"code_levels": 1}
"""Settings that are gone, with the only value that can still be read."""

NO_LONGER_FLAGS = (
    *RENAMED,
    *RENAMED.values(),
    *REMOVED,
    *("vocab_size", "min_clip_seconds", "max_clip_seconds", "max_text_chars", "trim_silence", "normalise_loudness"),
    *("max_refused_share", "keep", "checkpoint_every", "validate_every", "codec_steps", "gpt_steps", "decoder_steps"),
    *("alignment_weight", "text_dropout", "jit_compile", "cpu_threads"),
    *("text_vocab", "audio_codes", "gpt_layers", "gpt_width", "gpt_heads", "max_text_tokens", "max_audio_tokens"),
    *("conditioning_latents", "conditioning_layers", "perceiver_layers", "perceiver_heads", "text_start_token"),
    *("text_stop_token", "attend_text_stop", "audio_stop_targets", "normed_conditioning", "dvae_width"),
    *("dvae_code_width", "decoder", "decoder_width", "speaker_width", "dropout"),
)
"""Settings that were flags of `train` in 0.1, by the names of then and now. As flags they are hidden, work with a
warning, and go with the next version."""


MANIFEST_KEYS = {
    "detail": "postfilter",
    "guided": "classifier_free_guidance",
    "learnt_all_clips": "trained_on_all_clips",
    "learnt_from": "trained_on",
    "longest_tokens": "longest_text_tokens",
}
"""Keys of a voice's manifest by the name that they had."""

SPEAKING_FLAGS = {"--guards": "--hallucination-checks", "--no-guards": "--no-hallucination-checks"}
"""Flags of `synth` and `evaluate` by the name that they had; hidden, and gone with the next version."""


def setting_of(name: str, value: Any) -> tuple[str, Any] | None:
    """A setting as it is called now; None for one that is gone and changes nothing."""
    if name not in REMOVED:
        return RENAMED.get(name, name), value
    if value != REMOVED[name]:
        raise ConfigError(
            f"setting {name} is {value!r}, and this version reads {REMOVED[name]!r} only",
            hint="use version 0.1 for it, or train the voice again",
        )
    return None


def settings_of(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of one section, under the names that they have now."""
    return dict(found for name, value in saved.items() if (found := setting_of(name, value)) is not None)


def manifest_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A voice's manifest, under the keys that it has now."""
    return {MANIFEST_KEYS.get(name, name): value for name, value in metadata.items()}


def checkpoint_name(variable: str) -> str:
    """The name of a checkpoint's variable as it is now."""
    return variable.replace("model/judges/", "model/discriminators/", 1)
