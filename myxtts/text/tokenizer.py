"""Text to token ids and back, whatever the text: phonemes, characters, byte-pair pieces, or XTTS v2's own vocabulary.

In our vocabularies the ids 0 to 3 are padding, unknown, start and stop, then comes one token for each language; XTTS's
`vocab.json` keeps its own ids. `encode` normalises, puts the language token first and fails on no text: characters
fall back to their UTF-8 bytes, byte-pair pieces are made of bytes, phonemes that the vocabulary lacks become the
unknown token and are named by `unknown`. A tokenizer never changes after it was made, and is one JSON file on disk.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from myxtts.errors import ConfigError
from myxtts.text.languages import CODES, find_language
from myxtts.text.normalise import normalise
from myxtts.text.phonemes import PUNCTUATION, phonemes, phonemes_of_many, unspeakable

Frontend = Literal["phonemes", "characters", "bpe"]
FRONTENDS: tuple[Frontend, ...] = ("phonemes", "characters", "bpe")

PAD, UNKNOWN, START, STOP = 0, 1, 2, 3
SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]")
_FORMAT = "myxtts-tokenizer"
_BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
_ASCII = "abcdefghijklmnopqrstuvwxyz"
# What espeak writes for English and Persian, so that a vocabulary made from a few clips can read any text of theirs.
_COMMON_PHONEMES = "abdefhijklmnopqrstuvwxyzæðŋɐɑɒɔəɚɛɜɡɢɣɪɬɹɾʁʃʊʌʒʔʰʲˈˌːβθχᵻ\u0303\u0329"


class Tokenizer(ABC):
    """What every front end offers."""

    frontend: ClassVar[Frontend]
    pad_id: int = PAD
    unknown_id: int = UNKNOWN
    start_id: int = START
    stop_id: int = STOP

    @property
    @abstractmethod
    def size(self) -> int:
        """Ids are below this number."""

    @abstractmethod
    def encode(self, text: str, language: str) -> list[int]:
        """Ids of the normalised text, the language token first."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids (phonemes: the IPA), without special and language tokens."""

    @abstractmethod
    def unknown(self, text: str, language: str) -> set[str]:
        """Characters (phonemes: IPA signs, and pictures that no voice reads) that have no token of their own."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Everything that `load_tokenizer` needs."""

    @abstractmethod
    def tokens(self) -> list[str]:
        """The name of every id, in order: for reports and for tests."""

    def encode_many(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """`encode` of each text; faster than one at a time where phonemes have to be found."""
        return [self.encode(text, language) for text in texts]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as one JSON file, whole or not at all."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
        temporary.write_text(json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        temporary.replace(target)


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
            "format": _FORMAT,
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
        return {sign for sign in phonemes(plain, language) if sign not in self._id_of} | unspeakable(plain)


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
        return {sign for sign in normalise(text, language) if sign not in self._id_of}


class BpeTokenizer(Tokenizer):
    """Byte-pair pieces over bytes, trained on a corpus with the `tokenizers` library."""

    frontend = "bpe"

    def __init__(self, definition: str) -> None:
        self._bpe = _parse_bpe(definition)
        self._vocabulary: dict[str, int] = self._bpe.get_vocab(with_added_tokens=True)
        self._trained_on = set(json.loads(definition).get("myxtts_characters", ""))
        for number, name in enumerate(SPECIALS):
            if self._vocabulary.get(name) != number:
                raise ConfigError(
                    f"byte-pair vocabulary has {name} at {self._vocabulary.get(name)}, must be {number}",
                    hint="load XTTS's vocab.json as it is published, or make the vocabulary with `myxtts prepare`",
                )
        self._special_ids = {number for name, number in self._vocabulary.items() if _is_special(name)}

    @property
    def size(self) -> int:
        return max(self._vocabulary.values()) + 1

    def tokens(self) -> list[str]:
        return _names_in_order(self._vocabulary, self.size)

    def encode(self, text: str, language: str) -> list[int]:
        code = find_language(language).code
        number = self._vocabulary.get(f"[{code}]")
        if number is None:
            raise ConfigError(f"this vocabulary has no token for the language {code!r}", hint="make it again")
        return [number, *self._bpe.encode(normalise(text, language)).ids]

    def decode(self, ids: Iterable[int]) -> str:
        pieces = [number for number in map(int, ids) if number not in self._special_ids and number < self.size]
        return str(self._bpe.decode(pieces, skip_special_tokens=False))

    def unknown(self, text: str, language: str) -> set[str]:
        return {sign for sign in normalise(text, language) if sign not in self._trained_on and not sign.isspace()}

    def as_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": 1,
            "frontend": self.frontend,
            "bpe": json.loads(self._bpe.to_str()) | {"myxtts_characters": "".join(sorted(self._trained_on))},
        }


class XttsTokenizer(Tokenizer):
    """XTTS v2's published vocabulary: `[language]` first, spaces as `[SPACE]`, ids untouched."""

    frontend = "bpe"

    def __init__(self, definition: str) -> None:
        self._definition = definition
        self._bpe = _parse_bpe(definition)
        self._vocabulary: dict[str, int] = self._bpe.get_vocab(with_added_tokens=True)
        missing = [name for name in ("[UNK]", "[SPACE]", "[START]", "[STOP]") if name not in self._vocabulary]
        if missing:
            raise ConfigError(f"vocabulary has no {missing[0]} token", hint="is this the vocab.json of XTTS v2?")
        # XTTS pads text with its stop token.
        self.stop_id = self.pad_id = self._vocabulary["[STOP]"]
        self.start_id = self._vocabulary["[START]"]
        self.unknown_id = self._vocabulary["[UNK]"]
        self._space_id = self._vocabulary["[SPACE]"]
        self._special_ids = {number for name, number in self._vocabulary.items() if _is_special(name)}

    @property
    def size(self) -> int:
        return max(self._vocabulary.values()) + 1

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that this vocabulary has a token for."""
        return tuple(code for code in CODES if f"[{code}]" in self._vocabulary)

    def tokens(self) -> list[str]:
        return _names_in_order(self._vocabulary, self.size)

    def encode(self, text: str, language: str) -> list[int]:
        code = find_language(language).code
        number = self._vocabulary.get(f"[{code}]")
        if number is None:
            raise ConfigError(
                f"XTTS's vocabulary has no token for the language {code!r}",
                hint=f"it knows: {' '.join(self.languages)}; train a vocabulary of your own for others",
            )
        return [number, *self._bpe.encode(self._written(text, code).replace(" ", "[SPACE]")).ids]

    @staticmethod
    def _written(text: str, code: str) -> str:
        # XTTS saw no double quotes in training.
        return romanise(normalise(text, code).replace('"', ""), code)

    def decode(self, ids: Iterable[int]) -> str:
        names = self._bpe.id_to_token
        known = (number for number in map(int, ids) if number == self._space_id or number not in self._special_ids)
        return "".join(" " if number == self._space_id else names(number) or "" for number in known)

    def unknown(self, text: str, language: str) -> set[str]:
        written = self._written(text, find_language(language).code)
        return {sign for sign in written if not sign.isspace() and sign not in self._vocabulary}

    def as_json(self) -> dict[str, Any]:
        return dict(json.loads(self._definition))


def romanise(text: str, code: str) -> str:
    """Chinese, Japanese and Korean in Latin letters, as XTTS read them, where the library for it is installed."""
    try:
        if code == "zh-cn":
            import pypinyin

            tones = pypinyin.pinyin(text, style=pypinyin.Style.TONE3, heteronym=False, neutral_tone_with_five=True)
            return "".join(syllable[0] for syllable in tones)
        if code == "ja":
            import cutlet

            return str(cutlet.Cutlet().romaji(text)).lower()
        if code == "ko":
            from hangul_romanize import Transliter
            from hangul_romanize.rule import academic

            return str(Transliter(academic).translit(text))
    except ImportError:
        return text
    return text


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """A saved tokenizer, or XTTS v2's `vocab.json`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text)
    except OSError as error:
        raise ConfigError(f"vocabulary {path} cannot be read: {error.strerror}", hint="check the path") from error
    except ValueError as error:
        raise ConfigError(f"vocabulary {path} is not JSON: {error}", hint="copy or make the file again") from error
    return tokenizer_from_json(content)


def tokenizer_from_json(content: Any) -> Tokenizer:
    """The tokenizer that `as_json` described."""
    if isinstance(content, dict) and "model" in content and "format" not in content:
        return XttsTokenizer(json.dumps(content, ensure_ascii=False))
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != 1:
        raise ConfigError(
            "this file is no vocabulary of MyXTTS and none of XTTS v2",
            hint="pass the tokenizer.json of a run, or XTTS's vocab.json",
        )
    frontend = content.get("frontend")
    try:
        if frontend == "phonemes":
            return PhonemeTokenizer(content["symbols"], content["languages"])
        if frontend == "characters":
            return CharacterTokenizer(content["symbols"], content["languages"])
        if frontend == "bpe":
            return BpeTokenizer(json.dumps(content["bpe"], ensure_ascii=False))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"vocabulary lacks a usable {error}", hint="copy or make the file again") from error
    raise _no_such_frontend(frontend)


def train_tokenizer(frontend: str, pairs: Iterable[tuple[str, str]], vocab_size: int = 2000) -> Tokenizer:
    """A tokenizer for a corpus of (text, language) pairs. The same corpus gives the same vocabulary."""
    if frontend not in FRONTENDS:
        raise _no_such_frontend(frontend)
    by_language: dict[str, list[str]] = {}
    for text, language in pairs:
        by_language.setdefault(find_language(language).code, []).append(text)
    if frontend == "bpe":
        return _train_bpe(by_language, vocab_size)
    if frontend == "characters":
        seen = {sign for code, texts in by_language.items() for text in texts for sign in normalise(text, code)}
        return CharacterTokenizer(sorted(seen | set(f" {_ASCII}{PUNCTUATION}")))
    seen = set(f" {_COMMON_PHONEMES}{PUNCTUATION}")
    for code, texts in by_language.items():
        for sounds in phonemes_of_many([normalise(text, code) for text in texts], code):
            seen.update(sounds)
    return PhonemeTokenizer(sorted(seen))


def _train_bpe(by_language: dict[str, list[str]], vocab_size: int) -> BpeTokenizer:
    from tokenizers import Tokenizer as Bpe
    from tokenizers import decoders, models, pre_tokenizers, trainers

    specials = [*SPECIALS, *(f"[{code}]" for code in CODES)]
    smallest = len(specials) + 256
    if vocab_size < smallest:
        raise ConfigError(
            f"--vocab-size is {vocab_size}, must be at least {smallest} (256 bytes and {len(specials)} special tokens)",
            hint="2,000 is a good size for one language",
        )
    texts = [normalise(text, code) for code in sorted(by_language) for text in by_language[code]]
    bpe = Bpe(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    definition = json.loads(bpe.to_str())
    definition["myxtts_characters"] = "".join(sorted({sign for text in texts for sign in text}))
    return BpeTokenizer(json.dumps(definition, ensure_ascii=False))


def _parse_bpe(definition: str) -> Any:
    from tokenizers import Tokenizer as Bpe

    content = json.loads(definition)
    content.pop("myxtts_characters", None)
    try:
        return Bpe.from_str(json.dumps(content, ensure_ascii=False))
    except Exception as error:
        raise ConfigError(f"byte-pair vocabulary is damaged: {error}", hint="copy or make the file again") from error


def _is_special(name: str) -> bool:
    return name in SPECIALS or name == "[SPACE]" or (name[:1] == "[" and name[-1:] == "]" and name[1:-1] in CODES)


def _names_in_order(vocabulary: dict[str, int], size: int) -> list[str]:
    names = [""] * size
    for name, number in vocabulary.items():
        names[number] = name
    return names


def _no_such_frontend(frontend: object) -> ConfigError:
    return ConfigError(f"text front end {frontend!r} does not exist", hint=f"choose one of: {' '.join(FRONTENDS)}")
