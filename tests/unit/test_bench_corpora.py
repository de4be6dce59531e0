"""The corpora that benchmarks make for themselves: lengths as real ones have, and a million clips from one shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.scale import link_corpus
from bench.speechlike import KATHLEEN_QUANTILES_S, kathleen_lengths_s, make_corpus
from myxtts.data.prepare import prepare
from myxtts.data.prepared import open_prepared
from tests.corpus_maker import make_ljspeech, settings


def test_lengths_are_spread_as_kathleens_at_every_count() -> None:
    for clips in (100, 592):
        lengths = kathleen_lengths_s(clips)

        assert abs(lengths.mean() - 3.02) < 0.03
        assert lengths.min() >= KATHLEEN_QUANTILES_S[0]
        assert abs(np.quantile(lengths, 0.5) - 2.99) < 0.05


def test_a_made_corpus_can_be_prepared_without_a_refusal(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "clips", kathleen_lengths_s(5))

    prepared = prepare(corpus, settings(tmp_path / "cache"))

    assert len(prepared) == 5


def test_a_linked_corpus_reads_like_a_real_one_of_that_size(tmp_path: Path) -> None:
    real = prepare(make_ljspeech(tmp_path / "clips", 6), settings(tmp_path / "cache"))

    linked = open_prepared(link_corpus(real.path, tmp_path / "linked", 100))

    assert len(linked) == 102
    assert linked.read(100).id == real.read(100 % 6).id
    assert (linked.index.wave_samples[96:102] == real.index.wave_samples).all()
