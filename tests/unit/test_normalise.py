"""Normalising: known readings in every language, and the two promises: it fails on no text, and twice is once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import ConfigError
from myxtts.text import numbers, tables
from myxtts.text.languages import CODES, find_language, language_note, script_of
from myxtts.text.normalise import normalise
from myxtts.text.persian import ZWNJ

READINGS = [
    ("en", "Dr. Smith paid $20.15.", "doctor smith paid twenty dollars and fifteen cents."),
    ("en", "It was 1984, the 21st time", "it was nineteen eighty-four, the twenty-first time"),
    ("en", "on 3/5/2024 at 5:30", "on march fifth, twenty twenty-four at five thirty"),
    ("en", "1,234 people, pages 5-10", "one thousand two hundred and thirty-four people, pages five to ten"),
    ("en", "-5° or 12.05%", "minus five degrees or twelve point zero five percent"),
    ("en", "call 0049", "call zero zero four nine"),
    ("en", "$1 & €2", "one dollar and two euros"),
    ("en", "AT&T @ noon — “yes”…", 'at and t at noon - "yes"...'),
    ("en", "3>2 and 2 ≤ 3 ≠ 5", "three greater than two and two less than or equal to three not equal to five"),
    ("en", "⅞ inch, 2½ cups, 3⁄16", "seven eighths inch, two and one half cups, three sixteenths"),
    ("en", "steps ①② and ⒑", "steps one two and ten."),
    ("en", "₪50 or 1 ₴", "fifty israeli new shekels or one ukrainian hryvnia"),
    ("en", "𝐇𝐞𝐥𝐥𝐨 at 5 ℃", "hello at five degrees c"),
    ("es", "El 1º día costó 12,5 €", "el primero día costó doce coma cinco euros"),
    ("fr", "Mme Moreau a 80 ans", "madame moreau a quatre-vingts ans"),
    ("de", "z.B. 1.234 Euro am 3. Mai", "zum beispiel eintausendzweihundertvierunddreißig euro am dritte mai"),
    ("it", "il 3º giorno, 12,5", "il terzo giorno, dodici virgola cinque"),
    ("pt", "Sr. Silva tem 21 anos", "senhor silva tem vinte e um anos"),
    ("pl", "50 żołnierzy", "pięćdziesiąt żołnierzy"),
    ("tr", "%50 ISPARTA İzmir", "yüzde elli ısparta izmir"),
    ("ru", "г-н Иванов, 5-й раз", "господин иванов, пятый раз"),
    ("nl", "dhr. Jansen is 1e", "de heer jansen is eerste"),
    ("cs", "2. den, 12,5", "druhý den, dvanáct celá pět"),
    ("ar", "١٢ كتاب؟", "اثنا عشر كتاب?"),
    ("zh-cn", "在12.5秒内，50%的人。", "在十二点五秒内,百分之五十的人."),
    ("zh-cn", "2024-03-05", "二零二四年三月五日"),
    ("hu", "50 katona", "ötven katona"),
    ("ko", "3번째 50%", "세 번째 오십 퍼센트"),
    ("ja", "12個、３つ。", "十二個,三つ."),
    ("hi", "१२ बजे।", "बारह बजे."),
]


@pytest.mark.parametrize(("language", "written", "spoken"), READINGS)
def test_text_is_read_as_people_say_it(language: str, written: str, spoken: str) -> None:
    assert normalise(written, language) == spoken


PERSIAN = [
    ("كتاب علي", "کتاب علی"),
    ("ســـلامٌ، حالِ شما؟", "سلام, حال شما?"),
    ("۱۲۳ و ١٢٣ و 123", " و ".join(["صد و بیست و سه"] * 3)),
    ("می روم، نمی دانم", f"می{ZWNJ}روم, نمی{ZWNJ}دانم"),
    ("کتاب ها و خانه های بزرگ تر", f"کتاب{ZWNJ}ها و خانه{ZWNJ}های بزرگ{ZWNJ}تر"),
    (f"سلام{ZWNJ} {ZWNJ}{ZWNJ}می{ZWNJ}{ZWNJ}روم{ZWNJ}", f"سلام می{ZWNJ}روم"),
    ("خانهٔ ما", f"خانه{ZWNJ}ی ما"),
    ("۱۲٬۵۰۰ تومان", "دوازده هزار و پانصد تومان"),
    ("۱۲٫۵ یا ۵٪", "دوازده ممیز پنج یا پنج درصد"),
    ("۱۴۰۲/۰۵/۱۳", "سیزده مرداد هزار و چهارصد و دو"),
    ("ساعت ۵:۳۰", "ساعت پنج و سی"),
    ("نفر ۳ام", "نفر سوم"),
    ("یک hello ۲", "یک hello دو"),
    ("ﺳﻼم", "سلام"),
    ("۵ ≥ ۳ < ۴", f"پنج بزرگ{ZWNJ}تر یا مساوی سه کوچک{ZWNJ}تر از چهار"),
    ("۱½ و ¾", "یک و نیم و سه چهارم"),
]


@pytest.mark.parametrize(("written", "spoken"), PERSIAN)
def test_persian_is_brought_to_one_form(written: str, spoken: str) -> None:
    assert normalise(written, "fa") == spoken


MIXED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(list("0123456789.,:/-%$€£°#@&[](){} \u200c\u200d'\"…—")),
        st.sampled_from(list("یيكکآۀهٔ،؛؟۱۲۳٤٥٪٫٬ـً")),
        st.sampled_from(list("aeİIßǅﬁ½⅞⁄①⒑²ºª年月日<≥₪℃")),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(MIXED, st.sampled_from(CODES))
def test_normalising_twice_is_normalising_once(text: str, language: str) -> None:
    once = normalise(text, language)

    assert normalise(once, language) == once


@settings(max_examples=200, deadline=None)
@given(MIXED, st.sampled_from(CODES))
def test_normalised_text_can_name_no_special_token_and_has_no_digit(text: str, language: str) -> None:
    spoken = normalise(text, language)

    assert not set(spoken) & set("[]{}\n\t0123456789")
    spoken.encode("utf-8")


@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=-(10**15), max_value=10**15), st.sampled_from(CODES))
def test_every_integer_has_words_without_digits(number: int, language: str) -> None:
    for words in (numbers.cardinal(number, language), numbers.ordinal(abs(number), language)):
        assert words.strip()
        assert not any(sign.isdigit() for sign in words if sign in "0123456789")


def test_every_language_has_its_tables() -> None:
    for code in CODES:
        assert {"&", "@", "%", "#", "°", "+", "="} <= set(tables.SYMBOLS[code])
        assert code in tables.ABBREVIATIONS
        assert code in tables.RANGE
        assert code in numbers.MINUS
        assert code in numbers.POINT
        assert normalise("$ 5", code) != normalise("5", code)


@pytest.mark.parametrize(
    ("written", "code"),
    [("EN", "en"), ("en-US", "en"), ("fa_IR", "fa"), ("zh", "zh-cn"), ("pt-BR", "pt"), ("Farsi", "fa")],
)
def test_language_codes_are_understood_as_people_write_them(written: str, code: str) -> None:
    assert find_language(written).code == code


def test_an_unknown_language_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="'xx'") as caught:
        find_language("xx")

    assert "fa" in caught.value.hint


def test_language_indices_never_move() -> None:
    assert [CODES.index(code) for code in ("en", "ar", "hi", "fa")] == [0, 11, 16, 17]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Hello!", "latin"),
        ("سلام ok", "arabic"),
        ("こんにちは", "kana"),
        ("你好", "han"),
        ("1 + 2", None),
        ("Ж a", None),
    ],
)
def test_a_text_is_in_the_script_of_most_of_its_letters(text: str, script: str | None) -> None:
    assert script_of(text) == script


@pytest.mark.parametrize(
    ("text", "language", "learnt", "words"),
    [
        ("سلام", "fa", ("en",), "never learnt 'fa'"),
        ("سلام", "en", ("en",), "arabic letters and is read as 'en'"),
        ("سلام", "en", (), "arabic letters and is read as 'en'"),
        ("سلام", "fa", ("en", "fa"), None),
        ("سلام", "fa", (), None),
        ("日本語", "ja", ("ja",), None),
        ("12!", "fa", ("fa",), None),
    ],
)
def test_a_language_that_was_not_learnt_or_is_not_the_texts_own_is_noted(
    text: str, language: str, learnt: tuple[str, ...], words: str | None
) -> None:
    note = language_note(text, language, learnt)

    assert (note is None) if words is None else (note is not None and words in note)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize(("unit", "count"), [("1", 200_000), (" ", 400_000), (".", 400_000), ("1.", 100_000)])
def test_a_long_run_of_one_sign_takes_time_with_its_length_and_not_with_its_square(
    unit: str, count: int, language: str
) -> None:
    """With the square these are minutes; the suite's limit ends them. As they are they take a second or two."""
    spoken = normalise(f"x{unit * count}x", language)

    assert spoken.startswith("x")
    assert spoken.endswith("x")
