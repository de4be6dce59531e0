"""Alignment without a network: labels of a vocabulary, the best path, and how codes get their tokens."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from myxtts.config.model import ModelConfig
from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.prepared import ClipIndex
from myxtts.models.ctc_paths import edit_distance, end_scores, error_rate, fill_blanks, forced_paths, greedy_labels
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer
from myxtts.training import alignment
from myxtts.training.initial_voice import clips_that_fit, nothing_fits

BLANK = 3


def logits_of(frames: list[int], strength: float = 5.0) -> np.ndarray:
    """Logits that prefer one label in each frame."""
    logits = np.zeros((len(frames), BLANK + 1), np.float32)
    logits[np.arange(len(frames)), frames] = strength
    return logits


def test_the_path_follows_the_posteriors() -> None:
    frames = [3, 0, 0, 3, 1, 2, 2, 3]

    (path,) = forced_paths(logits_of(frames)[None], np.array([8]), [np.array([0, 1, 2])])

    assert path.tolist() == [-1, 0, 0, -1, 1, 2, 2, -1]


def test_the_path_visits_every_label_even_where_the_network_found_none() -> None:
    (path,) = forced_paths(logits_of([0, 0, 0, 2, 2, 2])[None], np.array([6]), [np.array([0, 1, 2])])

    assert set(path.tolist()) - {-1} == {0, 1, 2}
    assert (np.diff(path[path >= 0]) >= 0).all()


def test_a_doubled_label_has_a_blank_between() -> None:
    (path,) = forced_paths(logits_of([1, 1, 1, 1])[None], np.array([4]), [np.array([1, 1])])

    first, second = np.flatnonzero(path == 0), np.flatnonzero(path == 1)
    assert len(first)
    assert len(second)
    assert second.min() - first.max() == 2


def test_clips_of_a_batch_do_not_change_each_other() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(2, 12, BLANK + 1)).astype(np.float32)
    labels = [np.array([0, 2, 1]), np.array([1])]

    together = forced_paths(logits, np.array([12, 7]), labels)
    alone = [forced_paths(logits[i : i + 1, :n], np.array([n]), labels[i : i + 1])[0] for i, n in ((0, 12), (1, 7))]

    assert [path.tolist() for path in together] == [path.tolist() for path in alone]


def test_more_labels_than_frames_are_taken_evenly() -> None:
    (path,) = forced_paths(logits_of([0, 0, 0])[None], np.array([3]), [np.array([0, 1, 2, 0, 1, 2])])

    assert path.tolist() == [0, 2, 4]


@pytest.mark.parametrize("labels", [[], [2]])
def test_a_clip_of_few_labels_has_a_path_for_every_frame(labels: list[int]) -> None:
    (path,) = forced_paths(logits_of([3, 2, 3])[None], np.array([3]), [np.array(labels, int)])

    assert len(path) == 3
    assert fill_blanks(path).tolist() == [0, 0, 0]


def test_the_score_of_labels_is_that_of_the_best_of_all_paths_that_speak_them() -> None:
    logp_FK = np.log(np.random.default_rng(0).dirichlet(np.ones(3), 5)).astype(np.float32)
    labels = np.array([1, 1, 0])
    best = np.full(len(labels) + 1, -np.inf)
    for path in itertools.product(range(3), repeat=len(logp_FK)):
        spoken = [label for label, _ in itertools.groupby(path) if label != 2]
        if spoken == list(labels[: len(spoken)]):
            score = sum(logp_FK[frame, label] for frame, label in enumerate(path))
            best[len(spoken)] = max(best[len(spoken)], score)

    np.testing.assert_allclose(end_scores(logp_FK, labels), best, rtol=1e-5)


def test_blanks_go_to_the_nearest_label() -> None:
    path = np.array([-1, 0, -1, -1, -1, 1, 1, -1])

    assert fill_blanks(path).tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_greedy_decoding_merges_repeats_and_drops_blanks() -> None:
    assert greedy_labels(logits_of([3, 0, 0, 3, 0, 1, 1])) == [0, 0, 1]


@pytest.mark.parametrize(
    ("wanted", "found", "edits"), [("abc", "abc", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3)]
)
def test_edit_distance(wanted: str, found: str, edits: int) -> None:
    assert edit_distance(wanted, found) == edits


def test_error_rate_is_over_all_clips_and_not_the_mean_of_clips() -> None:
    assert error_rate([[1, 2, 3], [1]], [[1, 2, 3], [2]]) == 0.25


def test_marks_spaces_and_languages_make_no_sound() -> None:
    tokenizer = PhonemeTokenizer(["a", "ˈ", "ː", " ", ",", "ɚ", "\u0303"], ["en", "fa"])
    names = tokenizer.tokens()

    labels = tokenizer.spoken_labels()

    assert [names[i] for i in np.flatnonzero(labels >= 0)] == ["a", "ɚ"]
    assert sorted(labels[labels >= 0].tolist()) == [0, 1]


def test_letters_of_a_character_vocabulary_sound() -> None:
    tokenizer = CharacterTokenizer(["a", "س", "!"], ["en", "fa"])
    sounding = {tokenizer.tokens()[i] for i in np.flatnonzero(tokenizer.spoken_labels() >= 0)}

    assert {"a", "س"} <= sounding
    assert "!" not in sounding
    assert "[en]" not in sounding


@pytest.mark.parametrize(("samples", "codes"), [(0, 1), (767, 1), (1023, 1), (1024, 2), (4096, 5)])
def test_a_clip_has_a_code_for_four_frames_begun(samples: int, codes: int) -> None:
    assert codes_of(samples) == codes


def test_rows_of_a_batch_are_padded_with_zeros() -> None:
    alignments = Alignments(np.array([4, 5, 6, 7, 8], np.uint16), np.array([0, 2, 5]))

    assert alignments.rows(np.array([1, 0]), 4).tolist() == [[6, 7, 8, 0], [4, 5, 0, 0]]


def test_a_flipped_bit_in_kept_alignments_is_found_or_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "alignment.npz"
    alignment._write(path, tokens=np.repeat(np.arange(300, dtype=np.uint16), 3), starts=np.arange(0, 901, 30))
    whole, wanted = path.read_bytes(), alignment._load(path)
    assert wanted is not None
    refused = 0

    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        found = alignment._load(path)
        if found is None:
            refused += 1
        else:
            np.testing.assert_array_equal(found.tokens, wanted.tokens)
            np.testing.assert_array_equal(found.starts, wanted.starts)

    assert refused > len(whole) / 2
    assert caplog.text.count("the corpus is aligned again") == refused


@pytest.mark.parametrize(("stops", "kept"), [(1, [0, 1]), (4, [0])])
def test_a_clip_is_left_out_where_its_codes_and_stop_targets_have_no_positions(stops: int, kept: list[int]) -> None:
    index = SimpleNamespace(
        text_tokens=np.array([402, 402, 402, 403]), wave_samples=1024 * np.array([603, 604, 605, 1])
    )
    model = ModelConfig(model_size="tiny", audio_stop_targets=stops)

    fitting = clips_that_fit(SimpleNamespace(index=index), np.arange(4), model)  # type: ignore[arg-type]

    assert fitting.tolist() == kept


def test_where_no_clip_fits_each_limit_and_how_many_are_above_it_are_named() -> None:
    index = ClipIndex(
        wave_samples=1024 * np.array([9, 4, 9], np.uint32),
        text_tokens=np.array([4, 5, 5], np.uint32),
        speaker=np.zeros(3, np.int32),
        language=np.zeros(3, np.uint8),
    )
    report = {"refused": 7, "refused_by_reason": {"… s, longer than --max-clip-seconds …": 6, "no audio": 1}}
    prepared = SimpleNamespace(index=index, report=report)

    model = ModelConfig(model_size="tiny", max_text_tokens=4, max_audio_tokens=8)

    error = nothing_fits(prepared, model)  # type: ignore[arg-type]

    assert error.problem == (
        "no clip is left to learn from; of 3 that were prepared, 2 have more than 4 text tokens (--max-text-tokens) "
        "and 2 have more than 8 audio codes (--max-audio-tokens 8); "
        "preparing refused 7: … s, longer than --max-clip-seconds … (6), no audio (1)"
    )
    for flag in ("--max-text-chars", "--max-clip-seconds"):
        assert flag in error.hint
