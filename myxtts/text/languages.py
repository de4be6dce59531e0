"""The languages we speak: XTTS v2's seventeen and Persian, with what the other modules must know about each.

The order is the identity: a language's index is written into prepared corpora and vocabularies, so new languages
are only ever appended.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from myxtts.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Language:
    """One language, named as XTTS names it."""

    code: str
    name: str
    espeak_voice: str
    """The voice of espeak-ng that turns its text into phonemes."""
    numbers: str | None
    """Its name in num2words; None where we count ourselves."""
    decimal_mark: Literal[".", ","] = ","
    script: Literal["latin", "cyrillic", "arabic", "han", "hangul", "kana", "devanagari"] = "latin"
    date_order: Literal["dmy", "mdy", "ymd"] = "dmy"


LANGUAGES: tuple[Language, ...] = (
    Language(code="en", name="English", espeak_voice="en-us", numbers="en", decimal_mark=".", date_order="mdy"),
    Language(code="es", name="Spanish", espeak_voice="es", numbers="es"),
    Language(code="fr", name="French", espeak_voice="fr-fr", numbers="fr"),
    Language(code="de", name="German", espeak_voice="de", numbers="de"),
    Language(code="it", name="Italian", espeak_voice="it", numbers="it"),
    Language(code="pt", name="Portuguese", espeak_voice="pt-br", numbers="pt_BR"),
    Language(code="pl", name="Polish", espeak_voice="pl", numbers="pl"),
    Language(code="tr", name="Turkish", espeak_voice="tr", numbers="tr"),
    Language(code="ru", name="Russian", espeak_voice="ru", numbers="ru", script="cyrillic"),
    Language(code="nl", name="Dutch", espeak_voice="nl", numbers="nl"),
    Language(code="cs", name="Czech", espeak_voice="cs", numbers="cs"),
    Language(code="ar", name="Arabic", espeak_voice="ar", numbers="ar", decimal_mark=".", script="arabic"),
    Language(
        code="zh-cn",
        name="Chinese",
        espeak_voice="cmn",
        numbers=None,
        decimal_mark=".",
        script="han",
        date_order="ymd",
    ),
    Language(code="hu", name="Hungarian", espeak_voice="hu", numbers="hu", date_order="ymd"),
    Language(
        code="ko", name="Korean", espeak_voice="ko", numbers="ko", decimal_mark=".", script="hangul", date_order="ymd"
    ),
    Language(
        code="ja", name="Japanese", espeak_voice="ja", numbers="ja", decimal_mark=".", script="kana", date_order="ymd"
    ),
    Language(code="hi", name="Hindi", espeak_voice="hi", numbers=None, decimal_mark=".", script="devanagari"),
    Language(
        code="fa", name="Persian", espeak_voice="fa", numbers="fa", decimal_mark=".", script="arabic", date_order="ymd"
    ),
)
CODES: tuple[str, ...] = tuple(language.code for language in LANGUAGES)

AUTO = "auto"
"""In the place of a code: each clip of a corpus has the language that its text is in (`myxtts.text.guessing`)."""

_BY_CODE = {language.code: language for language in LANGUAGES}
_ALIASES = {"zh": "zh-cn", "cmn": "zh-cn", "per": "fa", "fas": "fa", "farsi": "fa", "persian": "fa"}


def find_language(code: str) -> Language:
    """The language of a code as people write it: `en`, `EN`, `en-US`, `en_GB`, `zh`, `fa-IR`."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    plain = code.strip().lower().replace("_", "-")
    base = plain.split("-")[0]
    for candidate in (plain, _ALIASES.get(plain), base, _ALIASES.get(base)):
        if candidate in _BY_CODE:
            return _BY_CODE[candidate]
    raise ConfigError(f"language {code!r} is not one that we speak", hint=f"choose one of: {' '.join(CODES)}")


_NAMED_AS = {
    "LATIN": "latin",
    "CYRILLIC": "cyrillic",
    "ARABIC": "arabic",
    "CJK": "han",
    "HANGUL": "hangul",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "DEVANAGARI": "devanagari",
}
"""Scripts by the first word of their letters' names in Unicode."""


def script_of(text: str) -> str | None:
    """The script of more than half of the letters; None where no script has so many, or there are no letters."""
    letters = Counter(_script_of_letter(sign) for sign in text if sign.isalpha())
    script, count = letters.most_common(1)[0] if letters else (None, 0)
    return script if 2 * count > letters.total() else None


@lru_cache(maxsize=8192)
def _script_of_letter(letter: str) -> str | None:
    return _NAMED_AS.get(unicodedata.name(letter, "").split(" ")[0].split("-")[0])


def foreign_script(text: str, language: str) -> str | None:
    """The script of the text where the language is not written in it; None also where the text has no one script."""
    script, own = script_of(text), find_language(language).script
    # Japanese is written in Chinese characters too.
    return None if script == own or (own, script) == ("kana", "han") else script


def guessed_language(text: str, speaker: str | None, learnt: Sequence[str]) -> str:
    """The language of a text whose caller did not say: the speaker's own where its script fits, else one that does.

    `learnt` are the voice's languages; empty where they are not known.
    """
    script = script_of(text)
    spoken = [find_language(code) for code in ([speaker] if speaker else [])]
    spoken += [language for language in LANGUAGES if not learnt or language.code in learnt]
    fitting = [language.code for language in spoken if language.script == script]
    if script == "arabic" and "fa" in fitting and speaker != "ar":
        return "fa"
    return fitting[0] if fitting else (spoken[0].code if spoken else "en")


def language_note(text: str, language: str, learnt: Sequence[str]) -> str | None:
    """Why a voice that learnt these languages may not say the text in this one; `learnt` is empty where unknown."""
    if learnt and language not in learnt:
        return f"the voice never learnt {language!r} and may not be understood: it learnt {', '.join(learnt)}"
    script = foreign_script(text, language)
    if script is None:
        return None
    return f"most of the text is in {script} letters and is read as {language!r}: name the text's own --language"
