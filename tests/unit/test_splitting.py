"""Pieces of a text: nothing is lost, nothing is too long, cuts are where a reader would breathe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import SynthesisError
from myxtts.synthesis.splitting import Border, split_text


def texts(text: str, limit: int = 200) -> list[str]:
    return [piece.text for piece in split_text(text, limit)]


TEXT = st.text(alphabet=st.sampled_from("aB é1.,;:!?…؟،۔。、 \n\t-()\"'«»سلا‌م🙂\u0301\u200d漢")) | st.text()


@given(TEXT, st.integers(1, 40))
def test_the_pieces_joined_are_the_text(text: str, limit: int) -> None:
    assert "".join(piece.text for piece in split_text(text, limit)) == text


@given(TEXT, st.integers(8, 40))
def test_no_piece_is_longer_than_the_limit_unless_it_is_one_sign_with_its_marks(text: str, limit: int) -> None:
    for piece in split_text(text, limit):
        assert len(piece.text) <= limit or not any(sign.isalnum() for sign in piece.text[1:])


def test_sentences_are_pieces_of_their_own() -> None:
    assert texts("This is the first one. Here comes the second! Is there a third one?") == [
        "This is the first one. ",
        "Here comes the second! ",
        "Is there a third one?",
    ]


def test_abbreviations_initials_and_decimals_end_no_sentence() -> None:
    text = "Dr. Smith and J. Miller paid 3.14 dollars, e.g. for a very small cake."

    assert texts(text) == [text]


def test_a_very_short_sentence_joins_its_neighbour() -> None:
    assert texts("Yes. I have seen the new house today.") == ["Yes. I have seen the new house today."]


def test_persian_and_chinese_sentences_are_found() -> None:
    assert texts("هوا امروز آفتابی است؟ من هر شب شعر می‌خوانم. او لبخند زد و رفت.") == [
        "هوا امروز آفتابی است؟ ",
        "من هر شب شعر می‌خوانم. ",
        "او لبخند زد و رفت.",
    ]
    assert len(texts("今天天气非常好我们去公园散步吧。明天也许会下雨所以今天就去吧。")) == 2


def test_a_long_sentence_is_cut_at_clauses_and_then_at_words() -> None:
    clauses = split_text("when the rain had stopped, we went out, and the sun was there again", 40)
    words = split_text("one two three four five six seven eight nine ten", 20)

    assert [piece.border for piece in clauses[:-1]] == [Border.CLAUSE] * (len(clauses) - 1)
    assert [piece.text for piece in words] == ["one two three ", "four five six seven ", "eight nine ten"]


def test_a_word_without_end_is_cut_between_characters_but_not_from_its_marks() -> None:
    pieces = texts("e\u0301" * 50, 9)

    assert all(not piece.startswith("\u0301") for piece in pieces)
    assert max(map(len, pieces)) <= 9


def test_paragraphs_end_pieces_and_are_marked() -> None:
    pieces = split_text("The first paragraph\n\nThe second paragraph", 200)

    assert [(piece.text, piece.border) for piece in pieces] == [
        ("The first paragraph\n\n", Border.PARAGRAPH),
        ("The second paragraph", Border.PARAGRAPH),
    ]


def test_five_thousand_characters_need_few_calls_of_the_tokenizer() -> None:
    calls = 0

    def cost(text: str) -> int:
        nonlocal calls
        calls += 1
        return len(text)

    pieces = split_text("word " * 1000, 100, cost)

    assert len(pieces) >= 50
    assert calls < 5000


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(SynthesisError, match="at most 0"):
        split_text("a", 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [" ", ".", "…", "\n", ". ", ", ", " -", ".'", "1"])
def test_a_long_run_of_one_sign_takes_time_with_its_length_and_not_with_its_square(unit: str) -> None:
    """With the square these are minutes; the suite's limit ends them. As they are they take a second."""
    text = f"x{unit * 150_000}x"

    assert "".join(piece.text for piece in split_text(text, 200)) == text
