"""Sizes and inputs of the GPT's golden case, the same for `tools/golden_gpt.py` and for the tests."""

from __future__ import annotations

import zlib

import numpy as np

from tests.golden.formula import noise

LAYERS, WIDTH, HEADS = 3, 64, 4
TEXT_VOCAB, AUDIO_CODES = 40, 96
TEXT_START, TEXT_STOP = 5, 0
MAX_TEXT, MAX_AUDIO = 30, 220
TEXT_LENGTHS = np.array([12, 9], np.int32)
CODE_LENGTHS = np.array([20, 15], np.int32)
STEPS = 200
PENALTY = 3.0


def _integers(name: str, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.RandomState(zlib.crc32(name.encode())).randint(low, high, shape).astype(np.int32)


def text_rows() -> np.ndarray:
    """Rows padded with the stop token, as Coqui's batches are."""
    text = _integers("gpt.text", 6, TEXT_VOCAB, (2, int(TEXT_LENGTHS.max())))
    return np.where(np.arange(text.shape[1])[None] < TEXT_LENGTHS[:, None], text, TEXT_STOP).astype(np.int32)


def code_rows() -> np.ndarray:
    return _integers("gpt.codes", 0, AUDIO_CODES, (2, int(CODE_LENGTHS.max())))


def mel_rows() -> np.ndarray:
    return noise("gpt.mel", (2, 37, 80))
