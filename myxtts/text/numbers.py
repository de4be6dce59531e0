"""Numbers to words: cardinals, ordinals, decimals, years and digit strings, in every language of the table.

num2words does what it does well; what it gets wrong or lacks is here: decimals (wrong in Persian and Italian, empty
in Turkish), Chinese and Hindi (missing), Turkish spacing, signs. No call fails: a number that is too long to be read
as one is read digit by digit.
"""

from __future__ import annotations

import re
from functools import lru_cache

from myxtts.text.languages import find_language

_LARGEST = 10**12

MINUS = {
    "en": "minus", "es": "menos", "fr": "moins", "de": "minus", "it": "meno", "pt": "menos", "pl": "minus",
    "tr": "eksi", "ru": "минус", "nl": "min", "cs": "minus", "ar": "سالب", "zh-cn": "负", "hu": "mínusz",
    "ko": "마이너스", "ja": "マイナス", "hi": "माइनस", "fa": "منفی",
}  # fmt: skip
POINT = {
    "en": "point", "es": "coma", "fr": "virgule", "de": "komma", "it": "virgola", "pt": "vírgula", "pl": "przecinek",
    "tr": "virgül", "ru": "запятая", "nl": "komma", "cs": "celá", "ar": "فاصلة", "zh-cn": "点", "hu": "egész",
    "ko": "점", "ja": "点", "hi": "दशमलव", "fa": "ممیز",
}  # fmt: skip

AND = {"en": "and", "fa": "و"}
"""Between a number and its fraction."""
FRACTION_LANGUAGES = frozenset(AND)

_ENGLISH_PARTS = {1: ("whole", "wholes"), 2: ("half", "halves"), 4: ("quarter", "quarters")}
_HAN_DIGITS = "零一二三四五六七八九"
_HINDI_BELOW_100 = (
    "शून्य", "एक", "दो", "तीन", "चार", "पाँच", "छह", "सात", "आठ", "नौ", "दस", "ग्यारह", "बारह", "तेरह", "चौदह",
    "पंद्रह", "सोलह", "सत्रह", "अठारह", "उन्नीस", "बीस", "इक्कीस", "बाईस", "तेईस", "चौबीस", "पच्चीस", "छब्बीस",
    "सत्ताईस", "अट्ठाईस", "उनतीस", "तीस", "इकतीस", "बत्तीस", "तैंतीस", "चौंतीस", "पैंतीस", "छत्तीस", "सैंतीस",
    "अड़तीस", "उनतालीस", "चालीस", "इकतालीस", "बयालीस", "तैंतालीस", "चौवालीस", "पैंतालीस", "छियालीस", "सैंतालीस",
    "अड़तालीस", "उनचास", "पचास", "इक्यावन", "बावन", "तिरपन", "चौवन", "पचपन", "छप्पन", "सत्तावन", "अट्ठावन", "उनसठ",
    "साठ", "इकसठ", "बासठ", "तिरसठ", "चौंसठ", "पैंसठ", "छियासठ", "सड़सठ", "अड़सठ", "उनहत्तर", "सत्तर", "इकहत्तर",
    "बहत्तर", "तिहत्तर", "चौहत्तर", "पचहत्तर", "छिहत्तर", "सतहत्तर", "अठहत्तर", "उनासी", "अस्सी", "इक्यासी",
    "बयासी", "तिरासी", "चौरासी", "पचासी", "छियासी", "सत्तासी", "अट्ठासी", "नवासी", "नब्बे", "इक्यानबे", "बानबे",
    "तिरानबे", "चौरानबे", "पचानबे", "छियानबे", "सत्तानबे", "अट्ठानबे", "निन्यानबे",
)  # fmt: skip
_HINDI_UNITS = ((10**7, "करोड़"), (10**5, "लाख"), (1000, "हज़ार"), (100, "सौ"))
_CZECH_ORDINALS = (
    "nultý", "první", "druhý", "třetí", "čtvrtý", "pátý", "šestý", "sedmý", "osmý", "devátý", "desátý",
    "jedenáctý", "dvanáctý", "třináctý", "čtrnáctý", "patnáctý", "šestnáctý", "sedmnáctý", "osmnáctý",
    "devatenáctý", "dvacátý",
)  # fmt: skip
_TURKISH_WORDS = re.compile(
    "sıfır|bir|iki|üç|dört|beş|altı|yedi|sekiz|dokuz|on|yirmi|otuz|kırk|elli|altmış|yetmiş|seksen|doksan|yüz|bin|"
    "milyon|milyar"
)
_TURKISH_LONGEST_FIRST = re.compile("|".join(sorted(_TURKISH_WORDS.pattern.split("|"), key=len, reverse=True)))


def cardinal(number: int, language: str) -> str:
    """`number` in words; one of more than twelve digits is read digit by digit."""
    code = find_language(language).code
    if number < 0:
        return f"{MINUS[code]} {cardinal(-number, code)}"
    if number >= _LARGEST:
        return digits(str(number), code)
    return _cardinal(number, code)


@lru_cache(maxsize=4096)
def _cardinal(number: int, code: str) -> str:
    if code == "zh-cn":
        return _chinese(number)
    if code == "hi":
        return _hindi(number)
    words = _in_words(number, find_language(code).numbers).replace(",", "")
    return " ".join(_TURKISH_LONGEST_FIRST.findall(words)) if code == "tr" else words


def _chinese(number: int) -> str:
    if number < 10:
        return _HAN_DIGITS[number]
    for unit, name in ((10**8, "亿"), (10**4, "万"), (1000, "千"), (100, "百"), (10, "十")):
        if number >= unit:
            head, rest = divmod(number, unit)
            words = ("" if unit == 10 and head == 1 else _chinese(head)) + name
            if not rest:
                return words
            # A gap of one or more places is read as one zero.
            return words + (_HAN_DIGITS[0] if rest * 10 < unit else "") + _chinese_rest(rest, unit)
    raise AssertionError(number)


def _chinese_rest(rest: int, unit: int) -> str:
    # Inside a larger number ten is 一十, not 十.
    return f"一{_chinese(rest)}" if 10 <= rest < 20 and unit > 10 else _chinese(rest)


def _hindi(number: int) -> str:
    if number < 100:
        return _HINDI_BELOW_100[number]
    for unit, name in _HINDI_UNITS:
        if number >= unit:
            head, rest = divmod(number, unit)
            return f"{_hindi(head)} {name}" + (f" {_hindi(rest)}" if rest else "")
    raise AssertionError(number)


def ordinal(number: int, language: str) -> str:
    """`number`-th in words, in the form that stands alone (masculine where there is a choice)."""
    code = find_language(language).code
    if not 0 <= number < _LARGEST:
        return cardinal(number, code)
    if code == "zh-cn":
        return "第" + _chinese(number)
    if code == "hi":
        return {1: "पहला", 2: "दूसरा", 3: "तीसरा", 4: "चौथा", 6: "छठा"}.get(number, _hindi(number) + "वाँ")
    if code == "cs":
        return _CZECH_ORDINALS[number] if number < len(_CZECH_ORDINALS) else cardinal(number, code)
    try:
        words = _in_words(number, find_language(code).numbers, to="ordinal").replace(",", "")
    except (NotImplementedError, ValueError, KeyError, IndexError, OverflowError):
        return cardinal(number, code)
    return words or cardinal(number, code)


def decimal(whole: str, fraction: str, language: str) -> str:
    """A decimal number from its two digit strings: the whole part as a number, the fraction digit by digit."""
    code = find_language(language).code
    return " ".join((integer(whole, code), POINT[code], digits(fraction, code)))


def fraction(numerator: int, denominator: int, language: str) -> str:
    """A fraction in words, in one of the `FRACTION_LANGUAGES`."""
    code = find_language(language).code
    if code == "fa":
        return (
            "نیم" if (numerator, denominator) == (1, 2) else f"{cardinal(numerator, code)} {ordinal(denominator, code)}"
        )
    one, many = _ENGLISH_PARTS.get(denominator) or (ordinal(denominator, code), f"{ordinal(denominator, code)}s")
    return f"{cardinal(numerator, code)} {one if numerator == 1 else many}"


def integer(text: str, language: str) -> str:
    """A digit string as people read it: one with leading zeros, or a very long one, digit by digit."""
    if (len(text) > 1 and text[0] == "0") or len(text) > 12:
        return digits(text, language)
    return cardinal(int(text), language)


def digits(text: str, language: str) -> str:
    """Every digit on its own."""
    code = find_language(language).code
    return " ".join(_cardinal(int(digit), code) for digit in text)


def year(number: int, language: str) -> str:
    """A year; English and German read most of them in two halves."""
    code = find_language(language).code
    if code in ("en", "de") and 1100 <= number <= 2099 and not 2000 <= number <= 2009:
        return _in_words(number, code, to="year")
    return cardinal(number, code)


def _in_words(number: int, language: str | None, to: str = "cardinal") -> str:
    from num2words import num2words  # a tenth of a second, and most texts have no numbers

    return str(num2words(number, lang=language, to=to))
