"""Which language a transcript is in, for `--language auto`: by its script and, where languages share one, by its words.

Each clip is looked at by itself. A text that says too little (one word that several languages have, or no word that any
of them has) takes the language of most of the corpus; nothing outside of the languages that we speak is ever found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from wordfreq import zipf_frequency

from myxtts.text.languages import LANGUAGES, script_of

CLEAR_LEAD = 0.35
"""Mean lead over the second language in Zipf points a word, a factor of 2.2 in frequency, from which on it is told."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_KANA = re.compile("[\u3041-\u30ff]")


def guess_language(text: str) -> str | None:
    """The code of the text's language, or None where the text does not tell."""
    if _KANA.search(text):
        return "ja"  # Japanese is written in Chinese characters too
    script = script_of(text)
    candidates = [language.code for language in LANGUAGES if language.script == script]
    return candidates[0] if len(candidates) == 1 else _by_words(text, candidates)


def guess_languages(texts: Iterable[str]) -> list[str | None]:
    """The language of each text; all None where none of them tells."""
    guessed = [guess_language(text) for text in texts]
    told = Counter(code for code in guessed if code is not None)
    most = told.most_common(1)[0][0] if told else None
    return [code or most for code in guessed]


def _by_words(text: str, candidates: list[str]) -> str | None:
    words = _WORD.findall(text.lower())
    if not words or not candidates:
        return None
    means = {code: sum(zipf_frequency(word, code, "small") for word in words) / len(words) for code in candidates}
    best, second = sorted(candidates, key=lambda code: -means[code])[:2]
    return best if means[best] - means[second] >= CLEAR_LEAD else None
