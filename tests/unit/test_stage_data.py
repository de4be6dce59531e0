"""The batches of a stage: which augmentation its training clips have, and that held-out clips have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from myxtts.config.config import XTTSConfig
from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus
from myxtts.training.stage_data import Corpus, StageData, size_of
from myxtts.training.stages import stages_of
from tests.corpus_maker import make_ljspeech, settings

AS_READ = {"wave", "wave_lengths", "text", "text_lengths", "speaker", "language", "clip", "draw"}
REFERENCE = {"reference", "reference_lengths"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    root: Path = tmp_path_factory.mktemp("stage_data")
    return prepare(make_ljspeech(root / "corpus", 40), settings(root), workers=1)


def data_of(stage: str, prepared: PreparedCorpus, **given: object) -> StageData:
    config = XTTSConfig(model_size="tiny", alignment_weight=0.0, **given)
    spec = {spec.name: spec for spec in stages_of(config.model)}[stage]  # type: ignore[index]
    train, held_out = (Corpus(prepared, clips) for clips in prepared.split())
    return StageData(config, spec, train, held_out, lambda: False, lambda task, done, total: None)


@pytest.mark.parametrize(
    ("stage", "train", "held_out"),
    [("codec", set(), set()), ("gpt", REFERENCE | {"corruption"}, REFERENCE), ("decoder", REFERENCE, REFERENCE)],
)
def test_a_stage_reads_what_its_declaration_says_and_corrupts_nothing_that_is_held_out(
    prepared: PreparedCorpus, stage: str, train: set[str], held_out: set[str]
) -> None:
    data = data_of(stage, prepared)

    with data.source(steps=100) as source, data.held_out_source() as held_out_source:
        assert set(next(source)) == AS_READ | train
        assert set(next(held_out_source)) == AS_READ | held_out


def test_corrupted_codes_are_of_the_model_s_codebook_and_as_many_as_asked_for(prepared: PreparedCorpus) -> None:
    with data_of("gpt", prepared, token_corruption=0.5, audio_codes=16).source(steps=100) as source:
        corruption = np.concatenate([next(source)["corruption"].ravel() for _ in range(6)])

    assert np.mean(corruption >= 0) == pytest.approx(0.5, abs=0.06)
    assert set(corruption.tolist()) == set(range(-1, 16))


def test_held_out_clips_are_read_once_as_they_were_recorded(prepared: PreparedCorpus) -> None:
    data = data_of("gpt", prepared, speed_perturbation=0.3, text_dropout=0.9)
    read: list[int] = []
    for batch in data.held_out_source():
        read.extend(batch["clip"].tolist())
        for row, clip in enumerate(batch["clip"].tolist()):
            wave, tokens = prepared.read_arrays(clip)
            assert (batch["wave_lengths"][row], batch["text_lengths"][row]) == (len(wave), len(tokens))
            np.testing.assert_array_equal(batch["wave"][row, : len(wave)], wave)

    assert sorted(read) == sorted(data.held_out.clips.tolist())


def test_the_size_of_a_batch_counts_its_audio_with_and_without_padding() -> None:
    batch = {"wave": np.zeros((2, 44_100), np.int16), "wave_lengths": np.array([44_100, 22_050], np.int32)}

    assert (size_of(batch).audio_seconds, size_of(batch).padded_seconds) == (3.0, 4.0)
