"""Concatenation augmentation: words, waves and alignments of two clips joined between words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.config.data import DataConfig
from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.augmentation import Augmentation
from myxtts.data.batching import batches
from myxtts.data.concatenation import FADE_SAMPLES, Concatenator, Sentence, WordBorder, joined
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus
from tests.corpus_maker import make_ljspeech, settings

CODE = 1024


def test_a_joined_sentence_has_the_first_clip_before_the_border_and_the_second_behind_it() -> None:
    first = Sentence(np.full(5 * CODE, 1000, np.int16), np.array([4, 10, 7, 11]), np.array([1, 1, 3, 3, 3]))
    second = Sentence(np.full(4 * CODE, -1000, np.int16), np.array([4, 20, 21, 7, 22]), np.array([1, 2, 4, 4]))

    made = joined(first, WordBorder(token=3, code=2), second, WordBorder(token=4, code=2))

    assert made.tokens.tolist() == [4, 10, 7, 22]
    assert made.alignment.tolist() == [1, 1, 3, 3]
    assert len(made.wave) == 4 * CODE
    assert (made.wave[: 2 * CODE] == 1000).all()
    assert (made.wave[2 * CODE + FADE_SAMPLES :] == -1000).all()
    assert np.abs(np.diff(made.wave.astype(int))).max() < 20, "the join clicks"


def corpus_of(folder: Path, texts: list[str], speakers: Sequence[str] = ("anna",)) -> PreparedCorpus:
    corpus = make_ljspeech(folder / "corpus", seconds=[2.0 + 0.1 * (n % 3) for n in range(len(texts))])
    lines = [
        {"audio": f"wavs/clip_{number}.wav", "text": text, "speaker": speakers[number % len(speakers)]}
        for number, text in enumerate(texts)
    ]
    (corpus / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return prepare(corpus, settings(folder / "cache", corpus_format="jsonl"), workers=1)


def evenly_spoken(prepared: PreparedCorpus) -> Alignments:
    """Each clip's tokens one after another, all of one length."""
    rows = []
    for clip in range(len(prepared)):
        wave, tokens = prepared.read_arrays(clip)
        rows.append(np.linspace(1, len(tokens) - 0.01, codes_of(len(wave)), endpoint=False).astype(np.uint16))
    return Alignments(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def concatenated(prepared: PreparedCorpus, *, seed: int = 0, share: float = 1.0) -> dict[str, Any]:
    clips = np.arange(len(prepared))
    augmentation = Augmentation(alignments=evenly_spoken(prepared), concatenation=share)
    config = DataConfig(batch_size=len(prepared))
    source = batches(prepared, config=config, seed=seed, clips=clips, augmentation=augmentation)
    batch = next(source)
    source.close()
    return batch


def texts_of(prepared: PreparedCorpus, batch: dict[str, Any]) -> list[str]:
    rows = zip(batch["text"], batch["text_lengths"], strict=True)
    return [prepared.tokenizer.decode(row[:length]) for row, length in rows]


WORDS = ["one two three four", "five six seven eight", "nine ten eleven twelve", "red blue green white"]


def test_words_stay_whole_and_in_the_order_of_their_clips(tmp_path: Path) -> None:
    prepared = corpus_of(tmp_path, WORDS)
    batch = concatenated(prepared)

    made = texts_of(prepared, batch)
    possible = {
        " ".join([*a.split()[:cut], *b.split()[resume:]])
        for a in WORDS
        for b in WORDS
        for cut in (1, 2, 3)
        for resume in (1, 2, 3)
    }
    assert set(made) <= possible | set(WORDS)
    assert set(made) - set(WORDS), "no sentence was changed"


def test_a_concatenated_row_is_as_long_as_it_says_and_its_alignment_runs_through_its_text(tmp_path: Path) -> None:
    batch = concatenated(corpus_of(tmp_path, WORDS))

    for row in range(len(WORDS)):
        samples, tokens = batch["wave_lengths"][row], batch["text_lengths"][row]
        spoken = batch["alignment"][row, : codes_of(int(samples))]
        assert not batch["wave"][row, samples:].any()
        assert not batch["text"][row, tokens:].any()
        assert spoken[-1] == tokens - 1
        assert (np.diff(spoken) >= 0).all()
        assert batch["text"][row, :tokens].all()


def test_the_same_draw_concatenates_the_same_and_another_one_differently(tmp_path: Path) -> None:
    prepared = corpus_of(tmp_path, WORDS)

    first, again, other = (texts_of(prepared, concatenated(prepared, seed=seed)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_share_of_none_and_texts_of_one_word_stay_as_they_are(tmp_path: Path) -> None:
    prepared = corpus_of(tmp_path / "words", WORDS)
    assert sorted(texts_of(prepared, concatenated(prepared, share=0.0))) == sorted(WORDS)

    single = ["alpha", "beta", "gamma"]
    prepared = corpus_of(tmp_path / "single", single)
    assert sorted(texts_of(prepared, concatenated(prepared))) == sorted(single)


@pytest.mark.parametrize("seed", range(4))
def test_speakers_are_not_mixed(tmp_path: Path, seed: int) -> None:
    prepared = corpus_of(tmp_path, WORDS, speakers=("anna", "bert"))
    batch = concatenated(prepared, seed=seed)

    for text, speaker in zip(texts_of(prepared, batch), batch["speaker"], strict=True):
        owners = {number % 2 for word in text.split() for number, words in enumerate(WORDS) if word in words.split()}
        assert len(owners) == 1
        assert int(prepared.index.speaker[owners.pop()]) == speaker


def test_one_speaker_among_many_is_concatenated_as_often_as_one_alone(tmp_path: Path) -> None:
    speakers = tuple(f"speaker_{number}" for number in range(12))
    prepared = corpus_of(tmp_path, [f"{words} {n}" for words in WORDS for n in "abcdefghijkl"], speakers)

    changed = set(texts_of(prepared, concatenated(prepared))) - {
        prepared.tokenizer.decode(prepared.read_arrays(clip)[1]) for clip in range(len(prepared))
    }

    assert len(changed) > len(prepared) / 2


def test_borders_are_found_where_words_begin(tmp_path: Path) -> None:
    prepared = corpus_of(tmp_path, ["ab cd"])
    spoken = np.array([1, 1, 1, 2, 2, 4, 4, 5])
    concatenator = Concatenator(
        prepared, np.array([0]), Alignments(spoken.astype(np.uint16), np.array([0, len(spoken)])), 1.0
    )

    assert concatenator.borders(0) == [WordBorder(token=4, code=5)]
