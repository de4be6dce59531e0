"""A vocabulary for a new corpus that keeps every token of the old one: language tokens, characters, byte-pair pieces.

A voice that goes on learning must read its old texts as before, so tokens are only added. Characters that the corpus
has and the vocabulary lacks get tokens of their own; byte-pair merges are continued from where the vocabulary's own
merges end, over the pieces that it makes of the corpus today.
"""

from __future__ import annotations

import heapq
import itertools
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from myxtts.errors import ConfigError
from myxtts.text.normalise import normalise, normalised
from myxtts.text.persian import ZWNJ
from myxtts.text.tokenizer import (
    BpeTokenizer,
    CharacterTokenizer,
    PhonemeTokenizer,
    Tokenizer,
    XttsTokenizer,
    sounds_of,
)
from myxtts.text.tokenizer import tokenizer_from_json as from_json

_SHOWN = 40


@dataclass(frozen=True)
class Extension:
    """A tokenizer with more tokens, and which those are."""

    tokenizer: Tokenizer
    languages: tuple[str, ...] = ()
    characters: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.languages or self.characters or self.pieces)

    def describe(self) -> str:
        """What was added, for the log."""
        last = self.tokenizer.size
        kinds = {
            "languages": [f"[{code}]" for code in self.languages],
            "characters": [_shown(sign) for sign in self.characters],
            "pieces": [self.tokenizer.decode([number]) for number in range(last - len(self.pieces), last)],
        }
        added = [
            f"{kind}: {len(names)} ({' '.join(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''})"
            for kind, names in kinds.items()
            if names
        ]
        return ", ".join(added) or "nothing"


def extend_tokenizer(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[str, str]],
    extra_tokens: int = 0,
    *,
    between: Callable[[], None] = lambda: None,
) -> Extension:
    """The vocabulary that a corpus of (text, language code) pairs needs; the same one where nothing is missing.

    `between` is called every few texts and pieces; what it raises ends the work.
    """
    by_language: dict[str, list[str]] = {}
    for text, code in pairs:
        by_language.setdefault(code, []).append(text)
    if isinstance(tokenizer, (PhonemeTokenizer, CharacterTokenizer)):
        if extra_tokens:
            raise ConfigError(
                f"--extra-tokens is {extra_tokens}, and the voice reads {tokenizer.frontend}, not byte-pair pieces",
                hint="leave --extra-tokens out: missing characters are added by themselves",
            )
        return _extended_symbols(tokenizer, by_language, between)
    assert isinstance(tokenizer, (BpeTokenizer, XttsTokenizer))
    return _extended_bpe(tokenizer, by_language, extra_tokens, between)


def old_ids(old: Sequence[str], new: Sequence[str], old_rows: int) -> list[int | None]:
    """For every row of the new text embedding the old row that it keeps; None for a new token.

    `old` and `new` are the token names in order. Weights may have more rows than the vocabulary has tokens; rows that
    no token has taken stay as they are.
    """
    place = {name: number for number, name in enumerate(old) if name}
    kept: list[int | None] = [place.get(name) for name in new]
    return kept + list(range(len(new), old_rows))


def _extended_symbols(
    tokenizer: PhonemeTokenizer | CharacterTokenizer, texts: dict[str, list[str]], between: Callable[[], None]
) -> Extension:
    languages = tuple(code for code in sorted(texts) if code not in tokenizer.languages)
    seen: set[str] = set()
    for code, own in texts.items():
        written = sounds_of if isinstance(tokenizer, PhonemeTokenizer) else normalised
        seen.update(*written(own, code, between))
    speakable = {sign for sign in seen if isinstance(tokenizer, PhonemeTokenizer) or _is_written(sign)}
    characters = tuple(sorted(speakable - set(tokenizer.symbols)))
    if not languages and not characters:
        return Extension(tokenizer)
    kind = type(tokenizer)
    extended = kind([*tokenizer.symbols, *characters], [*tokenizer.languages, *languages])
    return Extension(extended, languages, characters)


def _extended_bpe(
    tokenizer: BpeTokenizer | XttsTokenizer,
    texts: dict[str, list[str]],
    extra_tokens: int,
    between: Callable[[], None],
) -> Extension:
    content = json.loads(json.dumps(tokenizer.as_json()))
    definition: dict[str, Any] = content.get("bpe", content)
    vocabulary = _Vocabulary(definition, set(tokenizer.tokens()), tokenizer.size)
    languages = tuple(code for code in sorted(texts) if f"[{code}]" not in vocabulary.names)
    for code in languages:
        vocabulary.add_special(f"[{code}]")
    write = tokenizer.written if isinstance(tokenizer, XttsTokenizer) else normalise
    written = []
    for code in sorted(texts):
        for text in texts[code]:
            between()
            written.append(write(text, code))
    signs = {sign for text in written for sign in text}
    characters: tuple[str, ...] = ()
    if isinstance(tokenizer, XttsTokenizer):
        characters = tuple(sorted(sign for sign in signs if _is_written(sign) and sign not in vocabulary.names))
        for sign in characters:
            vocabulary.add(sign)
    else:
        # Bytes spell everything; these are only what `unknown` reports.
        definition["myxtts_characters"] = "".join(sorted(set(definition["myxtts_characters"]) | signs))
    pieces: tuple[str, ...] = ()
    if extra_tokens:
        pieces = vocabulary.continue_merges(_words(definition, written), extra_tokens, between)
    if content == tokenizer.as_json():
        return Extension(tokenizer)
    return Extension(from_json(content), languages, characters, pieces)


class _Vocabulary:
    """The JSON of a byte-pair vocabulary, to be added to."""

    def __init__(self, definition: dict[str, Any], names: set[str], size: int) -> None:
        self._definition, self._model = definition, definition["model"]
        self.names, self._next = names, size

    def add(self, name: str) -> int:
        number = self._model["vocab"][name] = self._next
        self.names.add(name)
        self._next += 1
        return int(number)

    def add_special(self, name: str) -> None:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        self._definition["added_tokens"].append({"id": self.add(name), "content": name, **flags, "special": True})

    def continue_merges(
        self, words: Counter[tuple[str, ...]], count: int, between: Callable[[], None]
    ) -> tuple[str, ...]:
        """Merge the commonest neighbours until `count` pieces are new or no two neighbours occur twice."""
        added: list[str] = []
        as_pairs = bool(self._model["merges"]) and not isinstance(self._model["merges"][0], str)
        merging = _Merging(words)
        while len(added) < count and (pair := merging.commonest()) is not None:
            between()
            merging.merge(pair)
            self._model["merges"].append(list(pair) if as_pairs else " ".join(pair))
            joined = pair[0] + pair[1]
            if joined not in self.names:
                self.add(joined)
                added.append(joined)
        return tuple(added)


class _Merging:
    """Words as rows of pieces, and how often two pieces stand side by side; a merge updates only where it happens."""

    def __init__(self, words: Counter[tuple[str, ...]]) -> None:
        self._rows = [list(word) for word in sorted(words)]
        self._times = [words[tuple(row)] for row in self._rows]
        self._counts: Counter[tuple[str, str]] = Counter()
        self._where: dict[tuple[str, str], set[int]] = {}
        for number in range(len(self._rows)):
            self._count(number, 1)
        # Counts only ever come into the heap when they grow; an entry that has shrunk since is put back corrected.
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def _count(self, number: int, sign: int) -> set[tuple[str, str]]:
        row = self._rows[number]
        pairs = list(itertools.pairwise(row))
        for pair in pairs:
            self._counts[pair] += sign * self._times[number]
            self._where.setdefault(pair, set()).add(number)
        return set(pairs)

    def commonest(self) -> tuple[str, str] | None:
        """The pair that occurs most often, twice at least; of equals the first in order."""
        while self._heap:
            counted, pair = self._heap[0]
            if -counted == self._counts[pair]:
                return pair if -counted > 1 else None
            heapq.heapreplace(self._heap, (-self._counts[pair], pair))
        return None

    def merge(self, pair: tuple[str, str]) -> None:
        touched: set[tuple[str, str]] = set()
        for number in self._where.pop(pair):
            self._count(number, -1)
            self._rows[number] = _joined(self._rows[number], pair)
            touched |= self._count(number, 1)
        self._where.pop(pair, None)
        for changed in touched:
            heapq.heappush(self._heap, (-self._counts[changed], changed))


def _joined(row: list[str], pair: tuple[str, str]) -> list[str]:
    made: list[str] = []
    at = 0
    while at < len(row):
        if tuple(row[at : at + 2]) == pair:
            made.append(pair[0] + pair[1])
            at += 2
        else:
            made.append(row[at])
            at += 1
    return made


def _words(definition: dict[str, Any], written: Iterable[str]) -> Counter[tuple[str, ...]]:
    """How often each word occurs, as the pieces that the vocabulary makes of it now."""
    from tokenizers import Tokenizer as Bpe

    plain = {name: value for name, value in definition.items() if name != "myxtts_characters"}
    bpe = Bpe.from_str(json.dumps(plain, ensure_ascii=False))
    unknown = plain["model"].get("unk_token")
    counts = Counter(word for text in written for word, _ in bpe.pre_tokenizer.pre_tokenize_str(text))
    words: Counter[tuple[str, ...]] = Counter()
    for word, count in counts.items():
        pieces = tuple(token.value for token in bpe.model.tokenize(word))
        if unknown not in pieces:
            words[pieces] += count
    return words


def _is_written(sign: str) -> bool:
    """Letters, marks and punctuation; a stray picture is worth no token."""
    return sign == ZWNJ or unicodedata.category(sign)[0] in "LMP"


def _shown(sign: str) -> str:
    return sign if sign.isprintable() and not unicodedata.combining(sign) else f"U+{ord(sign):04X}"
