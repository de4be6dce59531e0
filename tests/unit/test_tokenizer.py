"""Tokenizers: round trips, fixed ids, no text that fails, files that load, and XTTS's own vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Bpe
from wordfreq import top_n_list

from myxtts.errors import ConfigError
from myxtts.text.languages import CODES
from myxtts.text.normalise import normalise
from myxtts.text.phonemes import phonemes, phonemes_of_many
from myxtts.text.tokenizer import FRONTENDS, Tokenizer, load_tokenizer, tokenizer_from_json, train_tokenizer
from tests.awkward_texts import AWKWARD, UNSPOKEN

PAIRS = [
    ("Hello, world! It costs $5.", "en"),
    ("The quick brown fox jumps over the lazy dog.", "en"),
    ("سلام، حال شما چطور است؟ می‌روم", "fa"),
    ("Größe und Maß", "de"),
]
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from(list("abc سلام۱۲ [STOP]😀日本語'\"-.,?"))), max_size=30)

TOKENIZERS = {frontend: train_tokenizer(frontend, PAIRS, 500) for frontend in FRONTENDS}


@pytest.fixture(params=FRONTENDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, st.sampled_from(("en", "fa", "zh-cn", "tr")), st.sampled_from(("characters", "bpe")))
def test_decoding_what_was_encoded_gives_the_normalised_text(text: str, language: str, frontend: str) -> None:
    tokenizer = TOKENIZERS[frontend]

    assert tokenizer.decode(tokenizer.encode(text, language)) == normalise(text, language)


@settings(max_examples=60, deadline=None)
@given(ANY_TEXT, st.sampled_from(CODES))
def test_phonemes_fail_on_no_text_and_name_what_they_cannot_say(text: str, language: str) -> None:
    tokenizer = TOKENIZERS["phonemes"]

    ids = tokenizer.encode(text, language)

    assert all(0 <= number < tokenizer.size for number in ids)
    if tokenizer.unknown_id in ids:
        assert tokenizer.unknown(text, language)


def test_the_first_ids_are_fixed(tokenizer: Tokenizer) -> None:
    names = tokenizer.tokens()

    assert names[:6] == ["[PAD]", "[UNK]", "[START]", "[STOP]", "[en]", "[es]"]
    assert names[4 : 4 + len(CODES)] == [f"[{code}]" for code in CODES]
    assert len(names) == tokenizer.size == len(set(names))


def test_the_language_token_comes_first(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("salam", "fa")[0] == tokenizer.tokens().index("[fa]")
    assert tokenizer.encode("", "en") == [tokenizer.tokens().index("[en]")]


def test_text_cannot_smuggle_in_a_special_token(tokenizer: Tokenizer) -> None:
    specials = {number for number, name in enumerate(tokenizer.tokens()) if name.startswith("[") and len(name) > 2}

    assert not specials & set(tokenizer.encode("[STOP] [PAD] [en] [START] [SPACE]", "fa")[1:])


def test_a_saved_tokenizer_loads_as_it_was(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")

    loaded = load_tokenizer(tmp_path / "tokenizer.json")

    assert loaded.frontend == tokenizer.frontend
    assert loaded.tokens() == tokenizer.tokens()
    text = "Hello سلام 😀 Größe"
    assert loaded.encode(text, "en") == tokenizer.encode(text, "en")
    assert loaded.unknown(text, "en") == tokenizer.unknown(text, "en")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_the_same_corpus_gives_the_same_vocabulary(frontend: str) -> None:
    assert train_tokenizer(frontend, PAIRS, 500).tokens() == TOKENIZERS[frontend].tokens()


def test_encoding_many_equals_encoding_each(tokenizer: Tokenizer) -> None:
    texts = ["Hello there.", "سلام دنیا", "", "x 😀 y"]

    assert tokenizer.encode_many(texts, "fa") == [tokenizer.encode(text, "fa") for text in texts]


def test_characters_outside_the_corpus_are_reported() -> None:
    assert TOKENIZERS["characters"].unknown("naïve 日", "en") == {"ï", "日"}
    assert TOKENIZERS["phonemes"].unknown("fine 😀", "en") == {"😀"}
    assert TOKENIZERS["bpe"].unknown("naïve 日", "en") == {"ï", "日"}


@pytest.mark.parametrize(("text", "language"), AWKWARD, ids=lambda value: repr(value)[:24])
def test_every_sign_is_spoken_or_named(text: str, language: str) -> None:
    named = train_tokenizer("phonemes", []).unknown(text, language)

    assert named & set(text) == set(UNSPOKEN.get((text, language), ""))


def test_every_front_end_names_what_normalising_drops(tokenizer: Tokenizer, tmp_path: Path) -> None:
    xtts = load_tokenizer(xtts_like_vocabulary(tmp_path))

    for one in (tokenizer, xtts):
        assert {"\ue000", "\U0001fae9"} <= one.unknown("the \ue000 quick \U0001fae9 fox", "en")


def test_a_phoneme_vocabulary_from_no_text_reads_common_english_and_persian() -> None:
    tokenizer = train_tokenizer("phonemes", [])

    for language in ("en", "fa"):
        missing = {sign for text in top_n_list(language, 1500) for sign in tokenizer.unknown(text, language)}
        assert missing == set()


def test_a_bpe_vocabulary_has_the_size_that_was_asked_for_or_less() -> None:
    many = [(" ".join(top_n_list("en", 3000)), "en")]

    assert train_tokenizer("bpe", many, 700).size == 700
    with pytest.raises(ConfigError, match="--vocab-size is 100"):
        train_tokenizer("bpe", many, 100)


def test_an_unknown_front_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="'letters'"):
        train_tokenizer("letters", PAIRS)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"format": "myxtts-tokenizer", "version": 2},
        {"format": "myxtts-tokenizer", "version": 1, "frontend": "x"},
    ],
)
def test_what_is_no_vocabulary_is_refused(content: object) -> None:
    with pytest.raises(ConfigError):
        tokenizer_from_json(content)


def test_files_that_are_missing_or_damaged_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokenizer(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"format": "myx', encoding="utf-8")
    with pytest.raises(ConfigError, match="not JSON"):
        load_tokenizer(tmp_path / "cut.json")


def xtts_like_vocabulary(folder: Path) -> Path:
    """A small file of the same make as XTTS v2's vocab.json: BPE, whitespace cut, [STOP] 0, spaces as tokens."""
    specials = ["[STOP]", "[UNK]", "[SPACE]", *(f"[{code}]" for code in CODES if code != "fa"), "[START]"]
    bpe = Bpe(models.BPE(unk_token="[UNK]"))
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=specials, show_progress=False)
    bpe.train_from_iterator(["the quick brown fox jumps over the lazy dog, hello world!"], trainer)
    bpe.add_special_tokens([AddedToken(name, special=True) for name in specials])
    path = folder / "vocab.json"
    bpe.save(str(path))
    return path


def test_xtts_vocabulary_loads_with_its_own_ids(tmp_path: Path) -> None:
    path = xtts_like_vocabulary(tmp_path)
    ids_in_file = {token["content"]: token["id"] for token in json.loads(path.read_text())["added_tokens"]}

    tokenizer = load_tokenizer(path)
    ids = tokenizer.encode("Hello, World!", "en")

    assert tokenizer.frontend == "bpe"
    assert (tokenizer.stop_id, tokenizer.unknown_id) == (ids_in_file["[STOP]"], ids_in_file["[UNK]"]) == (0, 1)
    assert tokenizer.start_id == ids_in_file["[START]"]
    assert ids[0] == ids_in_file["[en]"]
    assert ids.count(ids_in_file["[SPACE]"]) == 1
    assert tokenizer.decode(ids) == "hello, world!"
    assert tokenizer.encode("[STOP] 😀", "en").count(0) == 0
    assert tokenizer.unknown("hello 😀", "en") == {"😀"}


def test_xtts_vocabulary_says_that_it_has_no_persian(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'fa'"):
        load_tokenizer(xtts_like_vocabulary(tmp_path)).encode("سلام", "fa")


def test_xtts_vocabulary_survives_saving(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(xtts_like_vocabulary(tmp_path))
    tokenizer.save(tmp_path / "again.json")

    assert load_tokenizer(tmp_path / "again.json").tokens() == tokenizer.tokens()


def test_english_inside_persian_is_spoken_in_english() -> None:
    sounds = phonemes("سلام hello دنیا", "fa").split()

    assert sounds[1] == phonemes("hello", "en")
    assert [sounds[0], sounds[2]] == [phonemes("سلام", "fa"), phonemes("دنیا", "fa")]


def test_persian_inside_english_is_spoken_in_persian() -> None:
    assert phonemes("say سلام", "en") == f"{phonemes('say', 'en')} {phonemes('سلام', 'fa')}"


def test_punctuation_keeps_its_place_among_phonemes() -> None:
    sounds = phonemes(normalise('Well, "yes" (no)! Why? سلام؛ بله؟', "fa"), "fa")

    assert [sign for sign in sounds if sign in ',"()!?;'] == list(',""()!?;?')
    assert sounds.endswith("?")
    assert " ," not in sounds


def test_phonemes_do_not_depend_on_what_was_asked_before() -> None:
    texts = [f"number {word}" for word in top_n_list("en", 50)]

    assert phonemes_of_many(texts, "en") == [phonemes(text, "en") for text in reversed(texts)][::-1]
