"""Coqui's `GPT` (the GPT itself, its conditioning encoder and perceiver) as weights of ours."""

from __future__ import annotations

import numpy as np

from myxtts.config.model import ModelConfig
from myxtts.models.coqui.mapping import Rule, Weights, linear, pointwise, same, translate, with_bias

PREFIX = "gpt."
# Second copies of the same weights that published files carry, and constant masks of old `transformers` versions.
IGNORED = (r"^gpt_inference\.", r"^gpt\.wte\.", r"\.attn\.(masked_)?bias$")


def gpt_weights(state: Weights, config: ModelConfig) -> dict[str, np.ndarray]:
    """Weights of `GPT` and `Conditioning` by path, from a state dict of Coqui's GPT alone (no prefix)."""
    return translate([*_gpt_rules(config), *_conditioning_rules(config)], state, ignored=IGNORED)


def _gpt_rules(config: ModelConfig) -> list[Rule]:
    rules = [
        Rule("gpt/text_embedding/table", ("text_embedding.weight",), same),
        Rule("gpt/audio_embedding/table", ("mel_embedding.weight",), same),
        Rule("gpt/text_position/table", ("text_pos_embedding.emb.weight",), same),
        Rule("gpt/audio_position/table", ("mel_pos_embedding.emb.weight",), same),
        *_norm("gpt/last_norm", "gpt.ln_f"),
        *_norm("gpt/head_norm", "final_norm"),
        *with_bias("gpt/text_head", "text_head", linear),
        *with_bias("gpt/audio_head", "mel_head", linear),
    ]
    for layer in range(config.gpt_layers):
        ours, theirs = f"gpt/block_{layer + 1}", f"gpt.h.{layer}"
        rules += [
            *_norm(f"{ours}/attention_norm", f"{theirs}.ln_1"),
            # Hugging Face stores GPT-2's matrices [in, out], as we do.
            *with_bias(f"{ours}/qkv", f"{theirs}.attn.c_attn", same),
            *with_bias(f"{ours}/attention_out", f"{theirs}.attn.c_proj", same),
            *_norm(f"{ours}/feed_norm", f"{theirs}.ln_2"),
            *with_bias(f"{ours}/up", f"{theirs}.mlp.c_fc", same),
            *with_bias(f"{ours}/down", f"{theirs}.mlp.c_proj", same),
        ]
    return rules


def _conditioning_rules(config: ModelConfig) -> list[Rule]:
    rules = [
        *with_bias("conditioning/project", "conditioning_encoder.init", pointwise),
        Rule("conditioning/latents", ("conditioning_perceiver.latents",), same),
        Rule("conditioning/norm/gamma", ("conditioning_perceiver.norm.gamma",), same),
    ]
    heads = config.gpt_heads
    for layer in range(config.conditioning_layers):
        ours, theirs = f"conditioning/block_{layer + 1}", f"conditioning_encoder.attn.{layer}"
        rules += [
            *_norm(f"{ours}/norm", f"{theirs}.norm"),
            Rule(f"{ours}/qkv/kernel", (f"{theirs}.qkv.weight",), lambda w: _heads_inside(w[:, :, 0], heads).T),
            Rule(f"{ours}/qkv/bias", (f"{theirs}.qkv.bias",), lambda b: _heads_inside(b, heads)),
            *with_bias(f"{ours}/out", f"{theirs}.proj_out", pointwise),
        ]
    for layer in range(config.perceiver_layers):
        ours, theirs = f"conditioning/perceiver_{layer + 1}", f"conditioning_perceiver.layers.{layer}"
        rules += [
            Rule(f"{ours}/query/kernel", (f"{theirs}.0.to_q.weight",), linear),
            Rule(f"{ours}/key_value/kernel", (f"{theirs}.0.to_kv.weight",), linear),
            Rule(f"{ours}/out/kernel", (f"{theirs}.0.to_out.weight",), linear),
            *with_bias(f"{ours}/up", f"{theirs}.1.0", linear),
            *with_bias(f"{ours}/down", f"{theirs}.1.2", linear),
        ]
    return rules


def _norm(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}/gamma", (f"{theirs}.weight",), same), Rule(f"{ours}/beta", (f"{theirs}.bias",), same)]


def _heads_inside(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order head, q/k/v, channel put into the order q/k/v, head, channel."""
    split = rows.reshape(heads, 3, rows.shape[0] // (3 * heads), *rows.shape[1:])
    return np.asarray(np.swapaxes(split, 0, 1).reshape(rows.shape))
