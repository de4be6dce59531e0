"""Text to token ids and back, whatever the text: phonemes, characters, byte-pair pieces, or XTTS v2's own vocabulary.

In our vocabularies the ids 0 to 3 are padding, unknown, start and stop, then comes one token for each language; XTTS's
`vocab.json` keeps its own ids. `encode` normalises, puts the language token first and fails on no text: characters
fall back to their UTF-8 bytes, byte-pair pieces are made of bytes, phonemes that the vocabulary lacks become the
unknown token. `unknown` names those, and every sign of the text that is not spoken. A tokenizer never changes after it
was made, and is one JSON file on disk.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from myxtts.errors import ConfigError
from myxtts.text.bpe import BpeTokenizer, XttsTokenizer, train_bpe
from myxtts.text.languages import CODES, find_language
from myxtts.text.normalise import dropped, normalise, normalised
from myxtts.text.phonemes import PUNCTUATION, phonemes, phonemes_of_many, unspoken
from myxtts.text.vocabulary import FORMAT, SPECIALS, UNKNOWN, Frontend, Tokenizer

__all__ = [
    "FRONTENDS",
    "BpeTokenizer",
    "CharacterTokenizer",
    "PhonemeTokenizer",
    "Tokenizer",
    "XttsTokenizer",
    "load_tokenizer",
    "tokenizer_from_json",
    "train_tokenizer",
]

FRONTENDS: tuple[Frontend, ...] = ("phonemes", "characters", "bpe")

_TEXTS_AT_ONCE = 64
_BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
_ASCII = "abcdefghijklmnopqrstuvwxyz"
# What espeak writes for English and Persian, so that a vocabulary made from a few clips can read any text of theirs.
_COMMON_PHONEMES = "abdefhijklmnopqrstuvwxyzæðŋɐɑɒɔəɚɛɜɡɢɣɪɬɹɾʁʃʊʌʒʔʰʲˈˌːβθχᵻ\u0303\u0329"


class _SymbolTokenizer(Tokenizer):
    """A list of one-character symbols after the special, language and byte tokens."""

    def __init__(self, symbols: Sequence[str], languages: Sequence[str] = CODES) -> None:
        self.languages = tuple(languages)
        self.symbols = tuple(symbols)
        self._names = [*SPECIALS, *(f"[{code}]" for code in self.languages), *self._bytes(), *self.symbols]
        if len(set(self._names)) != len(self._names):
            repeated = [name for name, count in Counter(self._names).items() if count > 1]
            raise ConfigError(f"vocabulary has {repeated[0]!r} more than once", hint="make the vocabulary again")
        self._id_of = {name: number for number, name in enumerate(self._names)}

    @staticmethod
    def _bytes() -> tuple[str, ...]:
        return ()

    @property
    def size(self) -> int:
        return len(self._names)

    def tokens(self) -> list[str]:
        return list(self._names)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": 1,
            "frontend": self.frontend,
            "languages": list(self.languages),
            "symbols": list(self.symbols),
        }

    def _language_id(self, language: str) -> int:
        code = find_language(language).code
        number = self._id_of.get(f"[{code}]")
        if number is None:
            raise ConfigError(
                f"this vocabulary has no token for the language {code!r}",
                hint=f"it was made for: {' '.join(self.languages)}",
            )
        return number


class PhonemeTokenizer(_SymbolTokenizer):
    """IPA signs, stress marks, spaces and punctuation, one token each."""

    frontend = "phonemes"

    def encode(self, text: str, language: str) -> list[int]:
        return self._ids(phonemes(normalise(text, language), language), language)

    def encode_many(self, texts: Sequence[str], language: str) -> list[list[int]]:
        sounds = phonemes_of_many([normalise(text, language) for text in texts], language)
        return [self._ids(sound, language) for sound in sounds]

    def _ids(self, sounds: str, language: str) -> list[int]:
        return [self._language_id(language), *(self._id_of.get(sign, UNKNOWN) for sign in sounds)]

    def decode(self, ids: Iterable[int]) -> str:
        first = self.size - len(self.symbols)
        return "".join(self._names[number] for number in map(int, ids) if first <= number < self.size)

    def unknown(self, text: str, language: str) -> set[str]:
        plain = normalise(text, language)
        without_token = {sign for sign in phonemes(plain, language) if sign not in self._id_of}
        return without_token | unspoken(plain, language) | dropped(text)


class CharacterTokenizer(_SymbolTokenizer):
    """Characters of the normalised text; those that the vocabulary lacks as their UTF-8 bytes."""

    frontend = "characters"

    @staticmethod
    def _bytes() -> tuple[str, ...]:
        return _BYTES

    def encode(self, text: str, language: str) -> list[int]:
        ids = [self._language_id(language)]
        for sign in normalise(text, language):
            known = self._id_of.get(sign)
            ids.extend((known,) if known is not None else (self._id_of[_BYTES[byte]] for byte in sign.encode()))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        first_byte = self._id_of[_BYTES[0]]
        buffer = bytearray()
        for number in map(int, ids):
            if first_byte <= number < first_byte + 256:
                buffer.append(number - first_byte)
            elif first_byte + 256 <= number < self.size:
                buffer += self._names[number].encode()
        return buffer.decode(errors="replace")

    def unknown(self, text: str, language: str) -> set[str]:
        return {sign for sign in normalise(text, language) if sign not in self._id_of} | dropped(text)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """A saved tokenizer, or XTTS v2's `vocab.json`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"vocabulary {path} cannot be read: {error.strerror}", hint="check the path") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"vocabulary {path} is not JSON: {error}", hint="copy or make the file again") from error
    return tokenizer_from_json(content)


def tokenizer_from_json(content: Any) -> Tokenizer:
    """The tokenizer that `as_json` described."""
    if isinstance(content, dict) and "model" in content and "format" not in content:
        return XttsTokenizer(json.dumps(content, ensure_ascii=False))
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != 1:
        raise ConfigError(
            "this file is no vocabulary of MyXTTS and none of XTTS v2",
            hint="pass the tokenizer.json of a run, or XTTS's vocab.json",
        )
    frontend = content.get("frontend")
    try:
        if frontend == "phonemes":
            return PhonemeTokenizer(_texts(content, "symbols"), _texts(content, "languages"))
        if frontend == "characters":
            return CharacterTokenizer(_texts(content, "symbols"), _texts(content, "languages"))
        if frontend == "bpe":
            return BpeTokenizer(json.dumps(content["bpe"], ensure_ascii=False))
    except KeyError as error:
        raise ConfigError(f"vocabulary lacks a usable {error}", hint="copy or make the file again") from error
    raise _no_such_frontend(frontend)


def _texts(content: dict[str, Any], name: str) -> list[str]:
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise KeyError(name)
    return values


def train_tokenizer(
    frontend: str,
    pairs: Iterable[tuple[str, str]],
    vocab_size: int = 2000,
    *,
    between: Callable[[], None] = lambda: None,
) -> Tokenizer:
    """A tokenizer for a corpus of (text, language) pairs. The same corpus gives the same vocabulary.

    `between` is called every few texts, of which there may be a million; what it raises ends the training.
    """
    if frontend not in FRONTENDS:
        raise _no_such_frontend(frontend)
    by_language: dict[str, list[str]] = {}
    for text, language in pairs:
        by_language.setdefault(find_language(language).code, []).append(text)
    if frontend == "bpe":
        return train_bpe(by_language, vocab_size, between)
    if frontend == "characters":
        seen: set[str] = set()
        for code, texts in by_language.items():
            seen.update(*normalised(texts, code, between))
        return CharacterTokenizer(sorted(seen | set(f" {_ASCII}{PUNCTUATION}")))
    seen = set(f" {_COMMON_PHONEMES}{PUNCTUATION}")
    for code, texts in by_language.items():
        for sounds in sounds_of(texts, code, between):
            seen.update(sounds)
    return PhonemeTokenizer(sorted(seen))


def sounds_of(texts: Sequence[str], code: str, between: Callable[[], None]) -> Iterator[str]:
    """The phonemes of many texts, some dozens at a time."""
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        yield from phonemes_of_many(list(normalised(texts[first : first + _TEXTS_AT_ONCE], code, between)), code)


def _no_such_frontend(frontend: object) -> ConfigError:
    return ConfigError(f"text front end {frontend!r} does not exist", hint=f"choose one of: {' '.join(FRONTENDS)}")
