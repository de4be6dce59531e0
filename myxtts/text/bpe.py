"""Byte-pair vocabularies: our own, trained on a corpus over bytes, and the published one of XTTS v2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from myxtts.errors import ConfigError
from myxtts.text.languages import CODES, find_language
from myxtts.text.normalise import dropped, normalise, normalised
from myxtts.text.vocabulary import FORMAT, SPECIALS, Tokenizer


class _PieceTokenizer(Tokenizer):
    """A vocabulary of the `tokenizers` library."""

    frontend = "bpe"

    def __init__(self, definition: str) -> None:
        self._bpe = _parse_bpe(definition)
        self._vocabulary: dict[str, int] = self._bpe.get_vocab(with_added_tokens=True)
        self._special_ids = {number for name, number in self._vocabulary.items() if _is_special(name)}

    @property
    def size(self) -> int:
        return max(self._vocabulary.values()) + 1

    def tokens(self) -> list[str]:
        names = [""] * self.size
        for name, number in self._vocabulary.items():
            names[number] = name
        return names


class BpeTokenizer(_PieceTokenizer):
    """Byte-pair pieces over bytes, trained on a corpus."""

    def __init__(self, definition: str) -> None:
        super().__init__(definition)
        self._trained_on = set(json.loads(definition).get("myxtts_characters", ""))
        for number, name in enumerate(SPECIALS):
            if self._vocabulary.get(name) != number:
                raise ConfigError(
                    f"byte-pair vocabulary has {name} at {self._vocabulary.get(name)}, must be {number}",
                    hint="load XTTS's vocab.json as it is published, or make the vocabulary with `myxtts prepare`",
                )

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
        plain = set(normalise(text, language))
        return {sign for sign in plain if sign not in self._trained_on and not sign.isspace()} | dropped(text)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": 1,
            "frontend": self.frontend,
            "bpe": json.loads(self._bpe.to_str()) | {"myxtts_characters": "".join(sorted(self._trained_on))},
        }


class XttsTokenizer(_PieceTokenizer):
    """XTTS v2's published vocabulary: `[language]` first, spaces as `[SPACE]`, ids untouched."""

    def __init__(self, definition: str) -> None:
        super().__init__(definition)
        self._definition = definition
        missing = [name for name in ("[UNK]", "[SPACE]", "[START]", "[STOP]") if name not in self._vocabulary]
        if missing:
            raise ConfigError(f"vocabulary has no {missing[0]} token", hint="is this the vocab.json of XTTS v2?")
        # XTTS pads text with its stop token.
        self.stop_id = self.pad_id = self._vocabulary["[STOP]"]
        self.start_id = self._vocabulary["[START]"]
        self.unknown_id = self._vocabulary["[UNK]"]
        self._space_id = self._vocabulary["[SPACE]"]

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that this vocabulary has a token for."""
        return tuple(code for code in CODES if f"[{code}]" in self._vocabulary)

    def encode(self, text: str, language: str) -> list[int]:
        code = find_language(language).code
        number = self._vocabulary.get(f"[{code}]")
        if number is None:
            raise ConfigError(
                f"XTTS's vocabulary has no token for the language {code!r}",
                hint=f"it knows: {' '.join(self.languages)}; train a vocabulary of your own for others",
            )
        return [number, *self._bpe.encode(self.written(text, code).replace(" ", "[SPACE]")).ids]

    @staticmethod
    def written(text: str, code: str) -> str:
        """The text as the byte pairs see it, but for its spaces."""
        # XTTS saw no double quotes in training.
        return romanise(normalise(text, code).replace('"', ""), code)

    def decode(self, ids: Iterable[int]) -> str:
        names = self._bpe.id_to_token
        known = (number for number in map(int, ids) if number == self._space_id or number not in self._special_ids)
        return "".join(" " if number == self._space_id else names(number) or "" for number in known)

    def unknown(self, text: str, language: str) -> set[str]:
        written = self.written(text, find_language(language).code)
        return {sign for sign in written if not sign.isspace() and sign not in self._vocabulary} | dropped(text)

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


def train_bpe(by_language: dict[str, list[str]], vocab_size: int, between: Callable[[], None]) -> BpeTokenizer:
    from tokenizers import Tokenizer as Bpe
    from tokenizers import decoders, models, pre_tokenizers, trainers

    specials = [*SPECIALS, *(f"[{code}]" for code in CODES)]
    smallest = len(specials) + 256
    if vocab_size < smallest:
        raise ConfigError(
            f"--vocab-size is {vocab_size}, must be at least {smallest} (256 bytes and {len(specials)} special tokens)",
            hint="2,000 is a good size for one language",
        )
    texts = [text for code in sorted(by_language) for text in normalised(by_language[code], code, between)]
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
    try:
        if not isinstance(content.pop("myxtts_characters", ""), str):
            raise TypeError("its characters are no text")
        return Bpe.from_str(json.dumps(content, ensure_ascii=False))
    except BaseException as error:
        # The library raises nothing more particular than Exception, and where it did not foresee a file, Rust's panic.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ConfigError(f"byte-pair vocabulary is damaged: {error}", hint="copy or make the file again") from error


def _is_special(name: str) -> bool:
    return name in SPECIALS or name == "[SPACE]" or (name[:1] == "[" and name[-1:] == "]" and name[1:-1] in CODES)
