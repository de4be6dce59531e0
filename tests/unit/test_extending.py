"""Growing a vocabulary for a new corpus: what is missing is added, nothing that was there moves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from myxtts.errors import ConfigError
from myxtts.text.extending import extend_tokenizer, old_ids
from myxtts.text.tokenizer import CharacterTokenizer, XttsTokenizer, train_tokenizer

PERSIAN = ["سلام دنیا، می‌روم به خانه‌ی بزرگ", "گل و پنیر و چای ژاله"]
PAIRS = [(text, "fa") for text in PERSIAN]


def xtts_vocabulary(merges: list[Any]) -> XttsTokenizer:
    """As XTTS v2 publishes it, in small: specials, some languages, letters and a few merges."""
    special = ["[STOP]", "[UNK]", "[SPACE]", "[en]", "[ar]", "[START]"]
    names = [*special, *"abcdefghijklmnopqrstuvwxyz,.", *"ابدسلمنهو", "th", "the", "سل"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": number, "content": name, "special": True, **flags} for number, name in enumerate(special)]
    model = {"type": "BPE", "dropout": None, "unk_token": "[UNK]", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "merges": merges,
             "vocab": {name: number for number, name in enumerate(names)}}  # fmt: skip
    return XttsTokenizer(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                                     "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                                     "post_processor": None, "decoder": None, "model": model}))  # fmt: skip


@pytest.fixture(params=["text", "pairs"])
def xtts(request: pytest.FixtureRequest) -> XttsTokenizer:
    """Merges in the two ways that such files have them."""
    merges = [("t", "h"), ("th", "e"), ("س", "ل")]
    return xtts_vocabulary([list(pair) if request.param == "pairs" else " ".join(pair) for pair in merges])


def test_a_language_that_xtts_lacks_gets_its_token_and_its_letters(xtts: XttsTokenizer) -> None:
    with pytest.raises(ConfigError, match="no token for the language 'fa'"):
        xtts.encode(PERSIAN[0], "fa")

    extension = extend_tokenizer(xtts, PAIRS)

    assert extension.languages == ("fa",)
    assert {"پ", "چ", "ژ", "گ", "ی", "\u200c"} <= set(extension.characters)
    assert "ا" not in extension.characters
    ids = extension.tokenizer.encode(PERSIAN[0], "fa")
    assert extension.tokenizer.tokens()[ids[0]] == "[fa]"
    assert xtts.unknown_id not in ids
    assert extension.tokenizer.decode(ids) == "سلام دنیا, می‌روم به خانه‌ی بزرگ"
    assert "[fa]" in extension.describe()
    assert "U+200C" in extension.describe()


def test_tokens_that_were_there_keep_their_ids_and_old_texts_read_as_before(xtts: XttsTokenizer) -> None:
    extension = extend_tokenizer(xtts, PAIRS, extra_tokens=10)

    assert extension.tokenizer.tokens()[: xtts.size] == xtts.tokens()
    assert extension.tokenizer.encode("the other day", "en") == xtts.encode("the other day", "en")
    kept = old_ids(xtts.tokens(), extension.tokenizer.tokens(), xtts.size)
    assert kept == [*range(xtts.size), *[None] * (extension.tokenizer.size - xtts.size)]


def test_extra_pieces_shorten_texts_and_lose_nothing(xtts: XttsTokenizer) -> None:
    plain = extend_tokenizer(xtts, PAIRS * 3).tokenizer
    extension = extend_tokenizer(xtts, PAIRS * 3, extra_tokens=12)

    assert len(extension.pieces) == 12
    assert extension.tokenizer.size == plain.size + 12
    for text in PERSIAN:
        short, long = extension.tokenizer.encode(text, "fa"), plain.encode(text, "fa")
        assert len(short) < len(long)
        assert extension.tokenizer.decode(short) == plain.decode(long)
    assert extend_tokenizer(xtts, PAIRS * 3, extra_tokens=12).pieces == extension.pieces


def test_merges_are_the_commonest_pairs_of_the_pieces_that_the_vocabulary_makes_now(xtts: XttsTokenizer) -> None:
    pieces = extend_tokenizer(xtts, [("thea thea theb", "en")] * 2, extra_tokens=5).pieces

    # "the" is one piece already, so the pairs are the+a (4 times) and the+b (twice), then nothing is left to merge.
    assert pieces == ("thea", "theb")


def test_byte_pieces_need_no_characters_and_continue_their_merges() -> None:
    old = train_tokenizer("bpe", [("hello there, general", "en")], 400)

    assert extend_tokenizer(old, PAIRS).tokenizer.tokens() == old.tokens()
    extension = extend_tokenizer(old, PAIRS * 3, extra_tokens=40)

    assert len(extension.pieces) == 40
    ids = extension.tokenizer.encode(PERSIAN[0], "fa")
    assert len(ids) < len(old.encode(PERSIAN[0], "fa"))
    assert extension.tokenizer.decode(ids) == old.decode(old.encode(PERSIAN[0], "fa"))
    assert extension.tokenizer.tokens()[: old.size] == old.tokens()
    assert not extension.tokenizer.unknown(PERSIAN[0], "fa")


def test_a_corpus_that_the_vocabulary_covers_changes_nothing(xtts: XttsTokenizer) -> None:
    extension = extend_tokenizer(xtts, [("the cat", "en")])

    assert not extension
    assert extension.tokenizer is xtts
    assert extension.describe() == "nothing"


def test_pictures_get_no_tokens(xtts: XttsTokenizer) -> None:
    assert not extend_tokenizer(xtts, [("the cat 🎉", "en")])


def test_characters_of_a_voice_of_our_own_grow_by_letters_and_by_a_language_in_the_middle() -> None:
    old = CharacterTokenizer(list(" abc"), ["en"])

    extension = extend_tokenizer(old, [("bad سلام", "fa")])

    assert extension.languages == ("fa",)
    assert extension.characters == ("d", *sorted("سلام"))
    kept = old_ids(old.tokens(), extension.tokenizer.tokens(), old.size)
    assert [old.tokens()[row] for row in kept if row is not None] == old.tokens()
    assert kept.count(None) == 1 + len(extension.characters)


def test_phonemes_have_no_pieces() -> None:
    with pytest.raises(ConfigError, match="--extra-tokens is 5, and the voice reads phonemes"):
        extend_tokenizer(train_tokenizer("phonemes", []), PAIRS, extra_tokens=5)


def test_rows_that_no_token_has_stay_where_weights_have_more_rows_than_tokens() -> None:
    assert old_ids(["a", "b"], ["a", "b", "c"], old_rows=5) == [0, 1, None, 3, 4]
