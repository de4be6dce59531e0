"""Attention over prompts that rows share and positions of their own equals attention over whole sequences."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from myxtts import open_voice
from myxtts.synthesis.litert.kv_cache import KVCache, Prompt
from myxtts.synthesis.speech_model import Text
from myxtts.synthesis.voice import BASE

HEADS, WIDTH, LAYERS = 2, 8, 2


def made_prompt(random: np.random.Generator, length: int) -> Prompt:
    def drawn() -> np.ndarray:
        return random.normal(size=(HEADS, length, WIDTH)).astype(np.float32)

    return Prompt([(drawn(), drawn()) for _ in range(LAYERS)])


class WholeSequences:
    """The same rows, each with all its keys and values in one piece."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[np.ndarray, np.ndarray]]] = []

    def add(self, prompt: Prompt) -> None:
        self.rows.append([(keys.copy(), values.copy()) for keys, values in prompt.keys_values])

    def drop(self, row: int) -> None:
        last = self.rows.pop()
        if row < len(self.rows):
            self.rows[row] = last

    def attend(self, layer: int, qkv_RD: np.ndarray) -> np.ndarray:
        found = []
        for row, (query, key, value) in enumerate(qkv_RD.reshape(-1, 3, HEADS, 1, WIDTH)):
            keys, values = self.rows[row][layer]
            keys, values = np.concatenate([keys, key], 1), np.concatenate([values, value], 1)
            self.rows[row][layer] = keys, values
            scores = np.exp(query @ keys.swapaxes(1, 2))
            found.append((scores / scores.sum(-1, keepdims=True) @ values).reshape(-1))
        return np.stack(found)


def step_both(cache: KVCache, whole: WholeSequences, random: np.random.Generator) -> None:
    cache.begin_step()
    for layer in range(LAYERS):
        qkv_RD = random.normal(size=(cache.rows, 3 * HEADS * WIDTH)).astype(np.float32)
        found, seen = cache.attend(layer, qkv_RD)
        np.testing.assert_allclose(found, whole.attend(layer, qkv_RD), atol=1e-5)
        assert np.isfinite(seen).all()
    cache.end_step()


def test_shared_prompts_of_unequal_lengths_while_rows_come_and_go() -> None:
    random = np.random.default_rng(0)
    cache, whole = KVCache(LAYERS, HEADS, WIDTH), WholeSequences()
    long, short = made_prompt(random, 9), made_prompt(random, 4)

    def add(prompt: Prompt) -> None:
        cache.add(prompt)
        whole.add(prompt)

    for prompt in (long, short, long, long):
        add(prompt)
    for _ in range(130):  # beyond what room there is at first
        step_both(cache, whole, random)
    for row in (1, 0):  # the only row of its prompt, then one whose place another takes
        cache.drop(row)
        whole.drop(row)
        step_both(cache, whole, random)
    add(short)
    step_both(cache, whole, random)
    assert cache.rows == 3


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_candidates_of_one_text_are_prefilled_once_and_leave_nothing_behind(guidance: float) -> None:
    synthesizer = open_voice(BASE)
    latents = synthesizer.latents().latents_LD
    batch = synthesizer.model.new_batch()
    gpt, prefilled = batch._gpt, []
    prefill = gpt.prefill
    gpt.prefill = lambda *given: prefilled.append(prefill(*given)) or prefilled[-1]
    ids = synthesizer.voice.tokenizer.encode("One two three.", "en")
    sampling = synthesizer.voice.sampling.__class__(guidance=guidance)

    for seed in range(4):
        batch.join(Text(latents, ids, sampling, seed=seed, max_codes=6))
    assert len(prefilled) == (1 if guidance == 1.0 else 2)
    while batch.rows:
        batch.step()
    prefilled.clear()
    gc.collect()

    assert not batch._prompts
