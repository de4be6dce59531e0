"""The GPT of an exported voice: between two attentions, one LiteRT file; the attentions and their cache in NumPy.

File k has everything of a position's way from the attention of block k to that of block k + 1 (attention output,
feed-forward, norm, query, key and value); the first begins with the embedded token, the last ends with the logits. All
work on single positions, so the same files prefill a prompt and step any number of rows. Sizes in names: P prompt
positions, R rows, D width, H heads, d head width, V audio vocabulary, L latents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.config.model import ModelConfig
from myxtts.synthesis.litert.kv_cache import MASKED, KVCache, Prompt
from myxtts.synthesis.litert.network import Network

Floats = NDArray[np.float32]


class Predicted(NamedTuple):
    """What one position of each row tells of the code behind it."""

    latents_RD: Floats
    """Normalised hidden states: what decoders read."""
    logits_RV: Floats
    spoken_token_R: NDArray[np.int64]
    """Text token that the alignment heads attend to; means nothing without such heads."""


@dataclass(frozen=True, eq=False)
class Prefilled:
    """A prompt, and what its last position tells of the first code."""

    prompt: Prompt
    predicted: Predicted


class LiteRTGPT:
    """Weights and files of one GPT; the sequences are in a `KVCache` of the caller's."""

    def __init__(
        self,
        config: ModelConfig,
        segments: Sequence[Network],
        tables: Mapping[str, Floats],
        alignment_heads: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.config = config
        self.heads = tuple(alignment_heads)
        self._tables = tables
        self._segments = segments

    @property
    def audio_stop(self) -> int:
        return self.config.audio_codes + 1

    def new_cache(self) -> KVCache:
        heads = self.config.gpt_heads
        return KVCache(self.config.gpt_layers, heads, self.config.gpt_width // heads)

    def prefill(self, latents_LD: Floats, text_ids: Sequence[int], cache: KVCache) -> Prefilled:
        """Latents, text and the start token at once, for rows of the cache to begin with."""
        x_PD = self._prompt(latents_LD, text_ids)
        positions, width, heads = len(x_PD), self.config.gpt_width, self.config.gpt_heads
        prompt = cache.new_prompt(positions)
        bias_PP = np.where(np.tri(positions, dtype=bool), np.float32(0), MASKED)
        looked = []
        [qkv_PD] = self._segments[0](x_PD)
        for layer in range(self.config.gpt_layers):
            split = qkv_PD.reshape(positions, 3, heads, width // heads).transpose(1, 2, 0, 3)
            query_HPd, key_HPd, value_HPd = np.ascontiguousarray(split)
            cache.write(prompt, layer, key_HPd, value_HPd)
            seen_HPP = _softmax(query_HPd @ key_HPd.swapaxes(1, 2) + bias_PP)
            looked += [seen_HPP[None, head, -1] for at, head in self.heads if at == layer]
            found_PD = (seen_HPP @ value_HPd).transpose(1, 0, 2).reshape(positions, width)
            if layer + 1 == self.config.gpt_layers:
                # Only the last position predicts a code.
                x_PD, found_PD = x_PD[-1:], np.ascontiguousarray(found_PD[-1:])
            x_PD, qkv_PD = self._segments[layer + 1](x_PD, found_PD)
        return Prefilled(prompt, Predicted(x_PD, qkv_PD, self._spoken(looked, np.array([len(text_ids)]))))

    def step(
        self,
        codes_R: NDArray[np.int64],
        places_R: NDArray[np.int64],
        text_lengths_R: NDArray[np.int64],
        cache: KVCache,
    ) -> Predicted:
        """One new code of every row, each at its own place in its row."""
        x_RD = self._tables["audio_embedding"][codes_R] + self._tables["audio_position"][places_R]
        cache.begin_step()
        looked = []
        [qkv_RD] = self._segments[0](x_RD)
        for layer in range(self.config.gpt_layers):
            found_RD, seen_RHC = cache.attend(layer, qkv_RD)
            looked += [_shares(seen_RHC[:, head]) for at, head in self.heads if at == layer]
            x_RD, qkv_RD = self._segments[layer + 1](x_RD, found_RD)
        cache.end_step()
        return Predicted(x_RD, qkv_RD, self._spoken(looked, text_lengths_R))

    def _prompt(self, latents_LD: Floats, text_ids: Sequence[int]) -> Floats:
        text = [self.config.text_start_token, *text_ids, self.config.text_stop_token]
        text_UD = self._tables["text_embedding"][text] + self._tables["text_position"][: len(text)]
        start = self.config.audio_codes
        start_1D = self._tables["audio_embedding"][start : start + 1] + self._tables["audio_position"][:1]
        return np.concatenate([latents_LD, text_UD, start_1D], dtype=np.float32)

    def _spoken(self, looked_RC: list[Floats], text_lengths_R: NDArray[np.int64]) -> NDArray[np.int64]:
        """The text token that the heads attend to most; the index behind the last token is the stop token's."""
        if not looked_RC:
            return np.zeros(len(text_lengths_R), np.int64)
        begin = self.config.conditioning_latents + 1
        total_RC = looked_RC[0] if len(looked_RC) == 1 else np.sum(looked_RC, axis=0)
        if len(text_lengths_R) == 1:
            return np.asarray(total_RC[:, begin : begin + 1 + int(text_lengths_R[0])].argmax(-1), np.int64)
        over_text_RU = total_RC[:, begin : begin + 1 + int(text_lengths_R.max())]
        inside_RU = np.arange(over_text_RU.shape[1]) <= text_lengths_R[:, None]
        return np.asarray(np.where(inside_RU, over_text_RU, np.float32(-1)).argmax(-1), np.int64)


def _shares(seen_RC: Floats) -> Floats:
    return np.asarray(seen_RC / seen_RC.sum(-1, keepdims=True), np.float32)


def _softmax(scores: Floats) -> Floats:
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(scores / scores.sum(-1, keepdims=True), np.float32)
