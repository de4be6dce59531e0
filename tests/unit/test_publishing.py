"""What a published voice says of its training: the languages it learnt, with those of the voice it began as."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.data.prepare import prepare
from myxtts.training.publishing import manifest_of, with_inherited
from tests.corpus_maker import make_ljspeech, settings


def test_a_voice_knows_the_languages_of_the_clips_that_it_learnt(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", clips=2)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"), workers=1)

    manifest = manifest_of(prepared, np.arange(2), XTTSConfig(), ())

    assert manifest["languages"] == ["en"]
    assert manifest["learnt_from"] == [prepared.clip_list]


def test_a_voice_remembers_every_corpus_that_its_run_learnt_from(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", clips=2)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"), workers=1)

    first = manifest_of(prepared, np.arange(2), XTTSConfig(), (), learnt_from=["other"])
    again = manifest_of(prepared, np.arange(2), XTTSConfig(), (), learnt_from=first["learnt_from"])

    assert again["learnt_from"] == ["other", prepared.clip_list]


def test_a_fine_tuned_voice_keeps_the_languages_and_the_sampling_that_it_brought() -> None:
    published = {"languages": ["en", "de"], "sampling": {"temperature": 0.75}, "guided": True}
    learnt = {"languages": ["fa", "de"], "longest_tokens": 9, "guided": False}

    manifest = with_inherited(learnt, published, ["dvae", "gpt"])

    kept = {"sampling": {"temperature": 0.75}, "guided": True}
    assert manifest == {"languages": ["en", "de", "fa"], "longest_tokens": 9, **kept}


def test_a_voice_that_brought_a_codec_alone_speaks_what_it_learns_itself_and_as_it_learns_it() -> None:
    published = {"languages": ["en"], "sampling": {"temperature": 0.75}, "guided": True}

    assert with_inherited({"languages": ["fa"]}, published, ["dvae"]) == {"languages": ["fa"]}


def test_what_a_voice_of_unknown_languages_speaks_stays_unknown() -> None:
    once = with_inherited({"languages": ["fa"]}, {}, ["gpt"])

    assert once == with_inherited({"languages": ["fa"]}, once, ["gpt"]) == {"languages": []}
