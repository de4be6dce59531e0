"""Attention over prompts that rows share and positions of their own equals attention over whole sequences."""

from __future__ import annotations

import gc
import tracemalloc
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from myxtts import open_voice
from myxtts.synthesis.litert.kv_cache import KVCache, Prompt
from myxtts.synthesis.speech_model import Text
from myxtts.synthesis.voice import BASE

HEADS, WIDTH, LAYERS = 2, 8, 2


class WholeSequences:
    """The same rows, each with all its keys and values in one piece."""

    def __init__(self, cache: KVCache, random: np.random.Generator) -> None:
        self.cache, self.random = cache, random
        self.rows: list[list[tuple[np.ndarray, np.ndarray]]] = []
        self.drawn: WeakKeyDictionary[Prompt, list[np.ndarray]] = WeakKeyDictionary()

    def new_prompt(self, length: int) -> Prompt:
        prompt = self.cache.new_prompt(length)
        self.drawn[prompt] = list(self.random.normal(size=(LAYERS, 2, HEADS, length, WIDTH)).astype(np.float32))
        for layer, (keys, values) in enumerate(self.drawn[prompt]):
            self.cache.write(prompt, layer, keys, values)
        return prompt

    def add(self, prompt: Prompt) -> None:
        self.cache.add(prompt)
        self.rows.append([(keys, values) for keys, values in self.drawn[prompt]])

    def drop(self, row: int) -> None:
        self.cache.drop(row)
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

    def step(self) -> None:
        """One of both, which find the same."""
        self.cache.begin_step()
        for layer in range(LAYERS):
            qkv_RD = self.random.normal(size=(len(self.rows), 3 * HEADS * WIDTH)).astype(np.float32)
            found, seen = self.cache.attend(layer, qkv_RD)
            np.testing.assert_allclose(found, self.attend(layer, qkv_RD), atol=1e-5)
            assert np.isfinite(seen).all()
        self.cache.end_step()


def test_shared_prompts_of_unequal_lengths_while_rows_come_and_go() -> None:
    random = np.random.default_rng(0)
    whole = WholeSequences(KVCache(LAYERS, HEADS, WIDTH), random)
    long, short = whole.new_prompt(9), whole.new_prompt(4)
    for prompt in (long, short, long, long):
        whole.add(prompt)
    for _ in range(130):  # beyond what room there is at first
        whole.step()
    for row in (1, 0):  # the only row of its prompt, then one whose place another takes
        whole.drop(row)
        whole.step()
    whole.add(short)
    whole.step()
    assert whole.cache.rows == 3


def test_rows_of_prompts_of_their_own_come_and_go_in_any_order() -> None:
    random = np.random.default_rng(1)
    whole = WholeSequences(KVCache(LAYERS, HEADS, WIDTH), random)
    for turn in range(200):
        while len(whole.rows) < 2 or (len(whole.rows) < 6 and random.random() < 0.5):
            whole.add(whole.new_prompt(1 + int(random.integers(50))))
        if turn % 3 == 2:
            whole.drop(int(random.integers(len(whole.rows))))
        whole.step()

    kept = [layer.nbytes for layer in whole.cache._layers_S2HPd]
    assert max(kept) <= 12 * 2 * HEADS * 64 * WIDTH * 4  # room for twice as many prompts as there ever were at once


def test_a_prompt_whose_first_row_never_came_is_forgotten() -> None:
    whole = WholeSequences(KVCache(LAYERS, HEADS, WIDTH), np.random.default_rng(2))
    whole.add(whole.new_prompt(5))
    for _ in range(20):
        whole.new_prompt(7)
    whole.step()

    assert len(whole.cache._prompts_S) == 1


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


def test_an_empty_batch_gives_its_memory_back_and_goes_on() -> None:
    synthesizer = open_voice(BASE)
    text = Text(synthesizer.latents().latents_LD, synthesizer.voice.tokenizer.encode("One two three.", "en"), seed=5)
    batch = synthesizer.model.new_batch()

    def generated(rows: int) -> list[int]:
        first, *_ = [batch.join(text) for _ in range(rows)]
        made = []
        while batch.rows:
            made += [step.code for step in batch.step() if step.row == first]
        return made

    codes = generated(1)
    tracemalloc.start()
    try:
        assert generated(8) == codes
        assert tracemalloc.get_traced_memory()[0] < 2**20
    finally:
        tracemalloc.stop()
    assert generated(1) == codes
