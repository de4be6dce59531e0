"""Text as it is spoken: one form for what can be typed in many, and words for what is written in signs.

`normalise` is idempotent: a second run changes nothing. It fails on no text; what it does not know it leaves alone.
Punctuation that carries prosody stays, in one ASCII form for all scripts, so that languages share its tokens.
Square brackets and braces become round ones, so that no text can name a vocabulary's special token such as `[STOP]`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from myxtts.text import numbers, tables
from myxtts.text.languages import Language, find_language
from myxtts.text.persian import ZWNJ, normalise_persian

_PASSES = 6

_PUNCTUATION = str.maketrans(
    {
        "،": ",", "؛": ";", "؟": "?", "۔": ".", "。": ".", "、": ",", "।": ".", "॥": ".", "…": "...",
        "٫": ".", "٬": ",", "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"', "「": '"', "」": '"',
        "『": '"', "』": '"', "‹": "'", "›": "'", "‘": "'", "’": "'", "‚": "'", "‛": "'", "`": "'", "´": "'",
        "–": "-", "—": "-", "―": "-", "‐": "-", "‑": "-", "‒": "-", "−": "-", "⁃": "-",
        "[": "(", "]": ")", "{": "(", "}": ")", "【": "(", "】": ")", "〈": "(", "〉": ")", "·": " ", "•": " ",
    }
)  # fmt: skip
# Ligatures, Arabic presentation forms, full-width, circled and mathematical letters, Roman numerals and degrees: other
# shapes of the same characters.
_OTHER_SHAPES = re.compile(
    "[\u2103\u2109\u2160-\u217f\u249c-\u24e9\ufb00-\ufb06\ufb50-\ufdfb\ufdfd-\ufdff\ufe70-\ufefc\uff01-\uffee"
    "\U0001d400-\U0001d7ff]"
)
# Each of these is a number of its own, also beside another one.
_CIRCLED_NUMBERS = re.compile("[\u2460-\u249b\u24ea]")
_FRACTION_SIGNS = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_DROPPED = ("Cc", "Cs", "Co", "Cn")
_SPACES = re.compile(r"\s+")
_SPACE_BEFORE_MARK = re.compile(r"\s+(?=[,;:.!?)](?:[\s,;:.!?)\"']|$))")

# A run of digits is looked at from its first one only: from each of them, the time would grow with its square.
_GROUPED = {
    ".": re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)"),
    ",": re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?!\d|\.\d)"),
}
_SIGN = re.escape("".join(tables.CURRENCY_CODES))
_FRACTION = re.compile(r"(?:(?<!\d)(\d+)\s+)?(?<!\d)(\d{1,4})\u2044(\d{1,4})(?!\d)")
_ISO_DATE = re.compile(r"(?<![\d/-])(?<!\d\.)(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?![\d/-])")
_LOCAL_DATE = re.compile(r"(?<![\d/-])(?<!\d\.)(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?![\d/-])")
_TIME = re.compile(r"(?<![\d:.])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])")
_RANGE = re.compile(r"(?<![\w.,-])(\d+)\s?-\s?(?=\d+(?![\w-]))")
_MINUS = re.compile(r"(?<![\w.,)-])-(?=\d)")
_YEAR = re.compile(rf"(?<![\w.,{_SIGN}])(?<![{_SIGN}] )(1[1-9]\d\d|20\d\d)(?!\w|[.,]\d|\s?[{_SIGN}%°])")
_INTEGER = re.compile(r"\d+")


def normalise(text: str, language: str) -> str:
    """`text` as a reader of `language` would say it, in lower case."""
    spoken = find_language(language)
    for _ in range(_PASSES):
        before, text = text, _one_pass(text, spoken)
        if text == before:
            break
    return text


def normalised(texts: Iterable[str], language: str, between: Callable[[], None]) -> Iterator[str]:
    """`normalise` of many texts; `between` is called before each, and may end it."""
    for text in texts:
        between()
        yield normalise(text, language)


def dropped(text: str) -> set[str]:
    """Characters that `normalise` leaves out though they may mean something: private, unassigned and control ones."""
    return {sign for sign in set(text) if unicodedata.category(sign) in _DROPPED and not sign.isspace()}


def _one_pass(text: str, language: Language) -> str:
    text = _one_form(text, language)
    if language.code == "fa":
        text = normalise_persian(text)
    text = _expand_abbreviations(text, language.code)
    if any(sign.isdigit() for sign in text):
        text = _expand_numbers(text, language)
    text = _expand_symbols(text, language.code)
    text = _SPACES.sub(" ", text).strip()
    return unicodedata.normalize("NFC", _SPACE_BEFORE_MARK.sub("", text))


def _one_form(text: str, language: Language) -> str:
    text = unicodedata.normalize("NFC", text)
    text = _OTHER_SHAPES.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _CIRCLED_NUMBERS.sub(_number_apart, text)
    if language.code in numbers.FRACTION_LANGUAGES:
        text = _FRACTION_SIGNS.sub(_number_apart, text)
    text = "".join(_plain_character(sign) for sign in text)
    if language.code == "tr":
        text = text.replace("İ", "i").replace("I", "ı")
    return text.translate(_PUNCTUATION).lower()


def _number_apart(match: re.Match[str]) -> str:
    return f" {unicodedata.normalize('NFKC', match.group())} "


@lru_cache(maxsize=8192)
def _plain_character(sign: str) -> str:
    """Digits of any script as ASCII, spaces as spaces, and nothing for what has no shape of its own."""
    category = unicodedata.category(sign)
    if category == "Nd":
        return str(unicodedata.digit(sign))
    if category in ("Zs", "Zl", "Zp") or sign in "\t\n\r\v\f":
        return " "
    if (category in _DROPPED or category == "Cf") and sign != ZWNJ:
        return ""
    return sign


@lru_cache(maxsize=32)
def _abbreviation_pattern(code: str) -> re.Pattern[str] | None:
    table = tables.ABBREVIATIONS[code]
    if not table:
        return None
    longest_first = sorted(table, key=len, reverse=True)
    return re.compile(r"(?<!\w)(?:" + "|".join(re.escape(short) for short in longest_first) + r")(?!\w)")


def _expand_abbreviations(text: str, code: str) -> str:
    pattern = _abbreviation_pattern(code)
    if pattern is None:
        return text
    return pattern.sub(lambda match: tables.ABBREVIATIONS[code][match.group()], text)


def _expand_symbols(text: str, code: str) -> str:
    for sign, word in tables.SYMBOLS[code].items():
        if sign in text:
            text = text.replace(sign, f" {word} ")
    for sign in tables.CURRENCY_CODES:
        if sign in text:
            text = text.replace(sign, f" {_currency(sign, 2, code)} ")
    return text


def _expand_numbers(text: str, language: Language) -> str:
    code = language.code
    if code in numbers.FRACTION_LANGUAGES:
        text = _FRACTION.sub(lambda m: _fraction(m[1], int(m[2]), int(m[3]), code), text)
    text = _ISO_DATE.sub(lambda m: _date(m, int(m[1]), int(m[3]), int(m[4]), code), text)
    text = _LOCAL_DATE.sub(lambda m: _local_date(m, language), text)
    text = _TIME.sub(lambda m: _time(int(m[1]), int(m[2]), code), text)
    text = _RANGE.sub(lambda m: f"{m[1]} {tables.RANGE[code]} ", text)
    text = _MINUS.sub(f" {numbers.MINUS[code]} ", text)
    if code in ("en", "de"):
        text = _YEAR.sub(lambda m: f" {numbers.year(int(m[1]), code)} ", text)
    text = _GROUPED[language.decimal_mark].sub(lambda match: re.sub(r"[.,]", "", match.group()), text)
    text = _expand_money(text, code)
    if code in tables.PERCENT_FIRST:
        text = re.sub(r"(?<!\d)(\d+(?:[.,]\d+)?)\s?%", _glued(tables.SYMBOLS[code]["%"], code) + r"\1", text)
    endings = tables.ORDINAL_ENDINGS.get(code)
    if endings:
        text = re.sub(
            rf"(?<![\d.,])(\d{{1,9}}){endings}", lambda m: _glued(numbers.ordinal(int(m[1]), code), code), text
        )
    text = re.sub(
        rf"(?<!\d)(\d+)[{'.,' if code == 'fa' else re.escape(language.decimal_mark)}](\d+)",
        lambda m: _glued(numbers.decimal(m[1], m[2], code), code),
        text,
    )
    return _INTEGER.sub(lambda m: _glued(numbers.integer(m[0], code), code), text)


def _glued(words: str, code: str) -> str:
    """Number words set into a text: Chinese and Japanese write no spaces."""
    return words.replace(" ", "") if code in ("zh-cn", "ja") else f" {words} "


def _fraction(whole: str | None, numerator: int, denominator: int, code: str) -> str:
    words = numbers.fraction(numerator, denominator, code)
    return f" {whole} {numbers.AND[code]} {words} " if whole else f" {words} "


def _local_date(match: re.Match[str], language: Language) -> str:
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    month, day = (first, second) if language.date_order == "mdy" else (second, first)
    return _date(match, year, month, day, language.code)


def _date(match: re.Match[str], year: int, month: int, day: int, code: str) -> str:
    """A date in words, or the match unchanged where it is none."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match.group()
    if code in ("zh-cn", "ja", "ko"):
        marks = ("년", "월", "일") if code == "ko" else ("年", "月", "日")
        parts = [numbers.digits(str(year), code).replace(" ", "") if code == "zh-cn" else numbers.cardinal(year, code)]
        parts += [numbers.cardinal(month, code), numbers.cardinal(day, code)]
        return " " + (" " if code == "ko" else "").join(p + mark for p, mark in zip(parts, marks, strict=True)) + " "
    month_name = _month(month, year, code)
    year_words = numbers.year(year, code)
    if code == "en":
        return f" {month_name} {numbers.ordinal(day, code)}, {year_words} "
    if code == "hu":
        return f" {year_words} {month_name} {numbers.cardinal(day, code)} "
    day_words = numbers.ordinal(day, code) if code in ("de", "ru", "pl", "cs") else numbers.cardinal(day, code)
    joiner = " de " if code in ("es", "pt") else " "
    return f" {joiner.join((day_words, month_name, year_words))} "


@lru_cache(maxsize=512)
def _month(month: int, year: int, code: str) -> str:
    # A Persian date before 1600 is of the Iranian calendar.
    if code == "fa" and year < 1600:
        return tables.JALALI_MONTHS[month - 1]
    from babel.dates import get_month_names  # a tenth of a second, and few texts need it

    return str(get_month_names("wide", locale=code)[month]).lower()


def _time(hour: int, minute: int, code: str) -> str:
    words = numbers.cardinal(hour, code)
    if minute == 0:
        return f" {words} o'clock " if code == "en" else f" {words} "
    if code == "en" and minute < 10:
        return f" {words} oh {numbers.cardinal(minute, code)} "
    joiner = " و " if code == "fa" else " "
    return f" {words}{joiner}{numbers.cardinal(minute, code)} "


@lru_cache(maxsize=1024)
def _currency(sign: str, count: int, code: str) -> str:
    one_many = tables.CURRENCIES.get(code, {}).get(sign)
    if one_many is not None:
        return one_many[0 if count == 1 else 1]
    locale = "zh" if code == "zh-cn" else code
    from babel.numbers import get_currency_name

    return str(get_currency_name(tables.CURRENCY_CODES[sign], count=count, locale=locale)).lower()


_MONEY_AMOUNT = r"(\d{1,12})(?:[.,](\d{2}))?(?![\d])"
_MONEY_BEFORE = re.compile(rf"([{_SIGN}])\s?{_MONEY_AMOUNT}(?![.,]\d)")
_MONEY_AFTER = re.compile(rf"(?<![\d.,]){_MONEY_AMOUNT}\s?([{_SIGN}])")


def _expand_money(text: str, code: str) -> str:
    text = _MONEY_BEFORE.sub(lambda m: _money(m[1], int(m[2]), m[3], code), text)
    return _MONEY_AFTER.sub(lambda m: _money(m[3], int(m[1]), m[2], code), text)


def _money(sign: str, amount: int, hundredths: str | None, code: str) -> str:
    words = f" {numbers.cardinal(amount, code)} {_currency(sign, amount, code)} "
    if not hundredths or int(hundredths) == 0:
        return words
    small = numbers.cardinal(int(hundredths), code)
    if code == "en" and sign in "$€":
        return f"{words}and {small} {tables.CENTS['en'][0 if int(hundredths) == 1 else 1]} "
    return f"{words}{small} "
