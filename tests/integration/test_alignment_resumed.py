"""An aligner that is asked to stop goes on where it was, and comes to the same alignments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from myxtts.data.prepare import prepare
from myxtts.data.prepared import PreparedCorpus
from myxtts.training import alignment
from myxtts.training.alignment import Alignments, alignments_of
from tests.corpus_maker import make_ljspeech, settings


def aligned(prepared: PreparedCorpus, *, steps: int = 1, stop_after: int | None = None) -> list[Alignments] | None:
    """`stop_after`: how often it may ask whether to stop before the answer is yes."""
    asked = iter(range(10**9))
    return alignments_of(
        prepared,
        np.arange(len(prepared)),
        steps=steps,
        device="/CPU:0",
        should_stop=lambda: stop_after is not None and next(asked) >= stop_after,
    )


def test_a_stopped_aligner_keeps_its_network_and_the_clips_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[0.8] * 9)
    straight, stopped = (prepare(corpus, settings(tmp_path / name)) for name in ("straight", "stopped"))
    monkeypatch.setattr(alignment, "_CLIPS_AT_ONCE", 3)

    wanted = aligned(straight)
    # It asks for the batch that it learns from, after learning, and before each three clips.
    interrupted = [aligned(stopped, stop_after=1)]
    assert [path.suffixes for path in stopped.path.glob("alignment-*")] == [[".network", ".npz"]]
    interrupted += [aligned(stopped, stop_after=1) for _ in range(2)]
    kept = sorted(path.name.split(".", 1)[1] for path in stopped.path.glob("alignment-*"))
    finished = aligned(stopped)

    assert interrupted == [None, None, None]
    assert kept == ["network.npz", "part.npz"]
    assert wanted is not None
    assert finished is not None
    np.testing.assert_array_equal(finished[0].tokens, wanted[0].tokens)
    kept = sorted(path.name.split(".", 1)[1] for path in stopped.path.glob("alignment-*"))
    assert kept == ["network.npz", "npz"], "the network stays, for the codec of other runs"


def flip_a_bit_of_the_compressed_numbers(path: Path) -> None:
    """The kind of the first block becomes one that there is not."""
    content = bytearray(path.read_bytes())
    name_bytes, extra_bytes = content[26] + 256 * content[27], content[28] + 256 * content[29]
    content[30 + name_bytes + extra_bytes] |= 0b110
    path.write_bytes(content)


def test_kept_files_with_a_flipped_bit_are_made_again_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", seconds=[0.8] * 4), settings(tmp_path))
    wanted = aligned(prepared)
    kept = sorted(prepared.path.glob("alignment-*.npz"))
    for path in kept:
        flip_a_bit_of_the_compressed_numbers(path)

    again = aligned(prepared)

    assert wanted is not None
    assert again is not None
    np.testing.assert_array_equal(again[0].tokens, wanted[0].tokens)
    assert [f"{path} cannot be read" in caplog.text for path in kept] == [True, True]


def test_a_brief_stage_takes_the_aligner_that_a_longer_one_left_and_keeps_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "ALIGNER_STEPS", 2)
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[0.8] * 4)
    after, before = (prepare(corpus, settings(tmp_path / name)) for name in ("after", "before"))

    def networks(prepared: PreparedCorpus) -> set[Path]:
        return set(prepared.path.glob("alignment-*.network.npz"))

    aligned(after, steps=9)
    full = networks(after)
    aligned(after, steps=1)
    assert networks(after) == full
    assert len(full) == 1

    aligned(before, steps=1)
    brief = networks(before)
    aligned(before, steps=9)
    resumed_with = [path for path in networks(before) if path not in brief]
    for path in resumed_with:
        path.write_bytes(b"never read by the brief stage")
    assert aligned(before, steps=1) is not None
    assert len(resumed_with) == 1
