"""Where recordings are cut: in pauses, to pieces of the wanted length, whatever the noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.collecting.pauses import CutLimits, cut, speech_runs
from myxtts.collecting.recording import frame_levels, plan_cuts, read_pieces
from myxtts.data.espeak import ESPEAK_SAMPLE_RATE, EspeakVoice, speak
from myxtts.errors import DataError
from tests.recording_maker import RATE, recording, spoken

LIMITS = CutLimits()


def pieces_of(samples: np.ndarray, limits: CutLimits = LIMITS) -> list[tuple[float, float]]:
    _, band_db = frame_levels(samples, RATE)
    return [(first / 100, last / 100) for first, last in cut(speech_runs(band_db), len(band_db), limits)]


def test_a_recording_is_cut_in_its_pauses() -> None:
    pieces = pieces_of(recording([2, 3, 4], [1, 0.8, 1.2, 1]))

    wanted = [(1.0, 3.0), (3.8, 6.8), (8.0, 12.0)]
    assert len(pieces) == len(wanted)
    for (start, end), (first, last) in zip(pieces, wanted, strict=True):
        assert first - 0.3 <= start <= first
        assert last <= end <= last + 0.3


def test_two_pieces_share_a_short_pause_at_its_middle() -> None:
    (_, end), (start, _) = pieces_of(
        recording([7, 7], [1, 0.3, 1])
    )  # too long for one piece, and the pause is shorter than two edges

    assert start == end
    assert 8.1 <= end <= 8.2


@pytest.mark.parametrize("below_db", [200, 40, 20, 12, 6])
def test_speech_is_found_in_white_noise(below_db: float) -> None:
    noise = float(np.sqrt(np.square(spoken(2)).mean())) * 10 ** (-below_db / 20)

    pieces = pieces_of(recording([2, 2, 2, 2], [1, 1, 1, 1, 1], noise=noise))

    assert [(round(start), round(end)) for start, end in pieces] == [(1, 3), (4, 6), (7, 9), (10, 12)]


@pytest.mark.parametrize(("pitch_hz", "level"), [(50, 0.3), (7500, 0.1)], ids=["hum", "whistle"])
def test_a_tone_beside_speech_hides_none_of_it(pitch_hz: float, level: float) -> None:
    samples = recording([2, 2], [1, 1, 1])
    samples += level * np.sin(2 * np.pi * pitch_hz * np.arange(len(samples)) / RATE)

    assert [(round(start), round(end)) for start, end in pieces_of(samples)] == [(1, 3), (4, 6)]


def test_a_fan_that_starts_in_the_middle_costs_only_pauses_around_its_start() -> None:
    quiet, loud = (recording([2] * 30, [1] * 31, noise=noise) for noise in (0.0005, 0.02))
    starts_s = len(quiet) / RATE

    pieces = pieces_of(np.concatenate([quiet, loud]))

    (joined,) = (piece for piece in pieces if piece[1] - piece[0] > 3)  # of which `collect` says that it has no pause
    assert starts_s - 1 < joined[0] < joined[1] < starts_s + 15
    assert len(pieces) == 60 - 3


def test_a_short_word_joins_its_nearer_neighbour() -> None:
    pieces = pieces_of(recording([2, 0.4, 3], [1, 0.9, 0.5, 1]))

    assert len(pieces) == 2
    assert pieces[1][1] - pieces[1][0] > 3.9


def test_long_speech_is_cut_at_its_longest_pauses() -> None:
    pieces = pieces_of(recording([5, 5, 5, 5], [1, 0.25, 0.4, 0.25, 1]))

    assert [end - start for start, end in pieces] == pytest.approx([10.65, 10.65], abs=0.1)


def test_speech_without_a_pause_stays_in_one_piece() -> None:
    assert len(pieces_of(recording([15], [1, 1]))) == 1


def test_real_speech_keeps_its_words_whole(tmp_path: Path) -> None:
    voice = EspeakVoice(name="a", variant="")
    sentences = [speak(text, voice, "en") / 32768 for text in ("The first of them.", "And then the second one here.")]
    pause = np.zeros(ESPEAK_SAMPLE_RATE)
    path = tmp_path / "read.flac"
    soundfile.write(path, np.concatenate([pause, sentences[0], pause, sentences[1], pause]), ESPEAK_SAMPLE_RATE)

    plan = plan_cuts(path, LIMITS)
    pieces = dict(read_pieces(path, plan, range(len(plan.spans))))

    assert len(pieces) == 2
    for piece, sentence in zip(pieces.values(), sentences, strict=True):
        assert np.square(piece).sum() == pytest.approx(np.square(sentence).sum(), rel=0.001)


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg"])
def test_every_format_gives_the_same_pieces(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"recording.{suffix}"
    soundfile.write(path, np.stack([recording([2, 3], [1, 1, 1])] * 2, 1), RATE)

    plan = plan_cuts(path, LIMITS)
    (_, second), *_ = read_pieces(path, plan, [1])

    assert len(plan.spans) == 2
    assert len(second) / RATE == pytest.approx(3.4, abs=0.15)


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        (np.zeros(0), "has no samples"),
        (np.zeros(5 * RATE), "has no speech"),
        (0.01 * np.random.default_rng(0).standard_normal(20 * RATE), "has no speech"),
        (np.full(RATE, np.nan), "not numbers"),
    ],
    ids=["empty", "silence", "noise", "nan"],
)
def test_a_recording_without_speech_is_refused(tmp_path: Path, samples: np.ndarray, problem: str) -> None:
    path = tmp_path / "nothing.wav"
    soundfile.write(path, samples, RATE, subtype="FLOAT")

    with pytest.raises(DataError, match=problem):
        plan_cuts(path, LIMITS)


def test_what_is_not_audio_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.wav"
    path.write_text("not audio")

    with pytest.raises(DataError, match=r"notes\.wav is not audio"):
        plan_cuts(path, LIMITS)


def test_times_are_those_of_the_samples_at_any_rate(tmp_path: Path) -> None:
    path = tmp_path / "long.flac"  # a hundredth of a second is 220.5 samples
    soundfile.write(path, recording([2] * 60, [3] * 61, rate=22050), 22050)

    plan = plan_cuts(path, LIMITS)

    assert plan.seconds(plan.spans[-1][0]) == pytest.approx(59 * 5 + 3 - LIMITS.edge_s, abs=0.03)
