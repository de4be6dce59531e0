"""Joining without clicks, timings of words, what the report says, and voices kept in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors.numpy import save_file

from myxtts.errors import SynthesisError
from myxtts.synthesis.joining import GrowingTrim, faded, pause, trim_silence
from myxtts.synthesis.references import (
    Speaker,
    VoiceLatents,
    checked_reference,
    choose_speaker,
    load_latents,
    load_speakers,
    read_reference,
    save_latents,
    save_speakers,
    windows,
)
from myxtts.synthesis.speech import PieceReport, SpeechReport
from myxtts.synthesis.splitting import Border
from myxtts.synthesis.timings import (
    WordTiming,
    as_srt,
    code_starts,
    estimated_starts,
    timings,
    token_ends,
    words_of,
    write_timings,
)
from tests.limits import no_more_memory_than

RATE = 22050


def tone(seconds: float, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(2 * np.pi * 220 * np.arange(int(seconds * RATE)) / RATE)).astype(np.float32)


def test_a_reference_of_five_hours_costs_what_is_used_of_it(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "long.wav", tone(1.0), RATE)
    with (tmp_path / "long.wav").open("r+b") as file:
        size = 5 * 3600 * RATE * 2
        file.seek(4)
        file.write((size + 36).to_bytes(4, "little"))
        file.seek(40)
        file.write(size.to_bytes(4, "little"))
        file.truncate(size + 44)  # silence that takes no room on the disk

    with no_more_memory_than(100 * 2**20):
        assert len(read_reference(tmp_path / "long.wav")) == pytest.approx(1.04 * RATE, abs=0.02 * RATE)


def test_silence_is_cut_off_both_ends_but_for_a_margin() -> None:
    trimmed = trim_silence(np.concatenate([np.zeros(RATE, np.float32), tone(1.0), np.zeros(RATE, np.float32)]), RATE)

    assert trimmed.start == pytest.approx(RATE - 0.04 * RATE, abs=0.011 * RATE)
    assert len(trimmed.wave) / RATE == pytest.approx(1.08, abs=0.025)


def test_a_silent_wave_becomes_empty_and_an_empty_one_stays_so() -> None:
    assert len(trim_silence(np.full(5000, 1e-5, np.float32), RATE).wave) == 0
    assert len(trim_silence(np.zeros(0, np.float32), RATE).wave) == 0


@pytest.mark.parametrize("part", [300, 5_000, 30_000, 10**6])
def test_a_wave_that_comes_in_parts_is_trimmed_and_faded_as_the_whole(part: int) -> None:
    quiet = np.zeros(RATE, np.float32)
    wave = np.concatenate([quiet, tone(1.0), quiet, tone(0.5), quiet])
    trim = GrowingTrim(RATE)

    parts = [trim.add(wave[at : at + part], last=at + part >= len(wave)) for at in range(0, len(wave), part)]

    whole = trim_silence(wave, RATE)
    assert np.array_equal(np.concatenate(parts), faded(whole.wave, RATE))
    assert trim.start == whole.start
    assert part > len(wave) or sum(len(one) > 0 for one in parts) > 1


def test_silence_in_parts_stays_unheard() -> None:
    trim = GrowingTrim(RATE)

    assert [len(trim.add(np.zeros(3000, np.float32), last=last)) for last in (False, False, True)] == [0, 0, 0]


@pytest.mark.parametrize("samples", [0, 1, 2, 50, 22050])
def test_a_faded_wave_begins_and_ends_without_a_step(samples: int) -> None:
    wave = faded(np.ones(samples, np.float32), RATE)

    edges = np.abs(np.diff(np.concatenate([[0.0], wave, [0.0]])))
    assert len(wave) == samples
    assert samples < 300 or edges.max() < 0.02


def test_stronger_borders_make_longer_pauses_and_speed_shortens_them() -> None:
    lengths = [len(pause(border, RATE)) for border in Border]

    assert lengths == sorted(lengths, reverse=True)
    assert len(pause(Border.SENTENCE, RATE, 2.0)) == len(pause(Border.SENTENCE, RATE)) // 2


def test_words_are_timed_by_the_tokens_that_were_looked_at() -> None:
    # Token 0 is the language; "one" has tokens 1 to 2, "two" 3 to 5.
    ends = token_ends(["one", "two"], lambda texts: [3, 6], 6)
    starts = code_starts(ends, np.array([0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 5, 6], np.int32))

    assert ends == [3, 6]
    assert starts == [3, 7, 12]


def test_a_glimpse_of_the_last_word_takes_no_time_from_the_first() -> None:
    glimpsing = np.array([1, 1, 5, 1, 2, 2, 3, 3, 4, 4, 5, 5], np.int32)

    assert code_starts([3, 6], glimpsing) == [0, 6, 12]


def test_a_look_back_does_not_turn_time_back() -> None:
    starts = code_starts([2, 4, 6], np.array([1, 2, 3, 1, 4, 5], np.int32))

    assert starts == sorted(starts)


def test_counts_that_shrink_where_words_are_linked_still_give_growing_ends() -> None:
    assert token_ends(["a", "b", "c"], lambda texts: [4, 3, 8], 7) == [4, 4, 7]


def test_without_heads_words_share_the_time_by_their_tokens() -> None:
    assert estimated_starts([2, 4, 8], 80) == [0, 20, 40, 80]


def test_times_stay_within_the_sound_that_was_kept() -> None:
    made = timings(["a", "b"], [0, 5, 10], "attention", code_s=0.1, offset_s=1.9, least_s=2.0, most_s=2.7)

    assert [(word.start_s, word.end_s) for word in made] == [(2.0, 2.4), (2.4, 2.7)]


def test_marks_alone_are_no_words() -> None:
    assert words_of("- Hello, ... you!") == ["Hello,", "you!"]


def test_timings_are_written_as_json_and_srt_and_nothing_else(tmp_path: Path) -> None:
    words = [WordTiming("سلام", 0.0, 0.5, "attention"), WordTiming("friend", 0.5, 3661.25, "attention")]
    write_timings(tmp_path / "t.json", words)

    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["words"][0]["word"] == "سلام"
    assert "00:00:00,500 --> 01:01:01,250\nfriend" in as_srt(words)
    with pytest.raises(SynthesisError, match=r"\.vtt"):
        write_timings(tmp_path / "t.vtt", words)


def test_the_report_names_what_the_checks_did_and_what_was_not_spoken() -> None:
    report = SpeechReport(decoder="x", elapsed_s=1.0)
    report.pieces += [
        PieceReport(text="Fine.", seconds=1.0, attempts=1),
        PieceReport(text="Looping.", seconds=1.0, attempts=3, fault="loop", cut_seconds=2.0, note="loop: cut"),
    ]
    report.unspoken = ("\x1b", "☃", "\ue000")

    assert report.lines() == ["Looping.: loop: cut", "not spoken: U+001B ☃ U+E000"]
    assert [piece.text for piece in report.faults] == ["Looping."]
    assert report.real_time_factor == 0.5
    assert SpeechReport().real_time_factor is None


def test_latents_come_back_as_they_were_and_only_for_the_same_weights(tmp_path: Path) -> None:
    latents = VoiceLatents(np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(5, np.float32))
    path = tmp_path / "mine.safetensors"
    save_latents(path, latents, "digest")

    again = load_latents(path, "digest", (3, 4))

    assert np.array_equal(again.latents_LD, latents.latents_LD)
    assert again.speaker_V is not None
    assert np.array_equal(again.speaker_V, np.ones(5))
    with pytest.raises(SynthesisError, match="other weights"):
        load_latents(path, "another", (3, 4))


def test_a_saved_voice_of_another_suffix_or_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="must end in"):
        save_latents(tmp_path / "mine.npz", VoiceLatents(np.zeros((1, 1), np.float32), None), "d")
    (tmp_path / "text.safetensors").write_text("no tensors at all")
    with pytest.raises(SynthesisError, match="is no saved voice"):
        load_latents(tmp_path / "text.safetensors", "d", (1, 1))


def test_speakers_are_kept_in_order_and_chosen_by_name_or_language(tmp_path: Path) -> None:
    save_speakers(
        tmp_path,
        [Speaker("zoe", "fa", np.ones(3, np.int16)), Speaker("a/b", "en", np.zeros(2, np.int16))],
    )
    speakers = load_speakers(tmp_path)

    assert list(speakers) == ["zoe", "a/b"]
    assert [choose_speaker(speakers, None, code).name for code in ("en", "EN", "en-US")] == ["a/b"] * 3
    assert choose_speaker(speakers, None, "de").name == "zoe"
    with pytest.raises(SynthesisError, match="no speaker 'joe'"):
        choose_speaker(speakers, "joe", "en")


def test_a_voice_without_speakers_asks_for_a_reference(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError) as caught:
        choose_speaker(load_speakers(tmp_path), None, "en")

    assert "--reference" in caught.value.hint


def test_silence_noise_of_a_moment_and_missing_files_are_no_references(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="only silence"):
        checked_reference(np.zeros(RATE, np.float32), "quiet.wav")
    with pytest.raises(SynthesisError, match="needs at least"):
        checked_reference(tone(0.2), "short.wav")
    with pytest.raises(SynthesisError, match=r"reference .*missing\.wav"):
        read_reference(tmp_path / "missing.wav")


def test_long_references_are_read_in_windows_and_short_rests_left_out() -> None:
    cut = windows([tone(7.0), tone(1.0)], 3.0)

    assert [round(len(part) / RATE, 1) for part in cut] == [3.0, 3.0, 1.0]


def test_a_speaker_whose_name_would_command_the_terminal_has_it_written_out(tmp_path: Path) -> None:
    save_speakers(tmp_path, [Speaker("\x1b]0;owned\x07anna\x9b2J", "en", np.zeros(9, np.int16))])

    assert list(load_speakers(tmp_path)) == [r"\x1b]0;owned\x07anna\x9b2J"]


@pytest.mark.parametrize("about", ["", "{", "[1]", '[{"name": "a"}]', '[{"name": 1, "language": "en"}]', "[" * 10**5])
def test_a_speakers_file_that_says_nothing_of_its_speakers_is_named(tmp_path: Path, about: str) -> None:
    metadata = {"format": "myxtts-speakers-1", "speakers": about}
    save_file({"0000": np.zeros(9, np.int16)}, tmp_path / "speakers.safetensors", metadata)

    with pytest.raises(SynthesisError, match=r"speakers\.safetensors is no speakers file"):
        load_speakers(tmp_path)


def test_more_speakers_than_there_are_waves_are_named(tmp_path: Path) -> None:
    about = json.dumps([{"name": name, "language": "en"} for name in "ab"])
    metadata = {"format": "myxtts-speakers-1", "speakers": about}
    save_file({"0000": np.zeros(9, np.int16)}, tmp_path / "speakers.safetensors", metadata)

    with pytest.raises(SynthesisError, match="is no speakers file"):
        load_speakers(tmp_path)
