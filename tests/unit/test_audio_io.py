"""Reading and writing audio: any format in, mono floats out, and a reason for what cannot be read."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.audio.io import read_audio, to_int16, write_audio
from myxtts.errors import DataError
from tests.limits import no_more_memory_than
from tests.processes import run_program


def tone(seconds: float, rate: int, hz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg"])
def test_what_was_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    wave = tone(0.5, 22050)

    write_audio(tmp_path / f"clip{suffix}", wave, 22050)

    read = read_audio(tmp_path / f"clip{suffix}")
    assert read.dtype == np.float32
    assert np.abs(read - wave).max() < (2e-4 if suffix != ".ogg" else 0.2)
    assert [path.name for path in tmp_path.iterdir()] == [f"clip{suffix}"]


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "FLOAT", "DOUBLE"])
def test_any_sample_format_is_read_as_the_same_floats(tmp_path: Path, subtype: str) -> None:
    wave = tone(0.2, 22050)
    soundfile.write(tmp_path / "clip.wav", wave, 22050, subtype=subtype)

    assert np.abs(read_audio(tmp_path / "clip.wav") - wave).max() < 0.01


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 192000])
def test_other_rates_are_resampled_to_the_same_tone(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "clip.wav", tone(1.0, rate), rate)

    wave = read_audio(tmp_path / "clip.wav")

    assert abs(len(wave) - 22050) <= 1
    assert np.argmax(np.abs(np.fft.rfft(wave[:22050]))) == pytest.approx(440, abs=1)


def test_channels_are_averaged(tmp_path: Path) -> None:
    wave = tone(0.1, 22050)
    soundfile.write(tmp_path / "clip.wav", np.stack([wave, -wave], axis=1), 22050, subtype="FLOAT")

    assert np.abs(read_audio(tmp_path / "clip.wav")).max() < 1e-6


def test_samples_beyond_full_scale_are_clipped(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "loud.wav", tone(0.1, 22050) * 6, 22050, subtype="FLOAT")

    assert np.abs(read_audio(tmp_path / "loud.wav")).max() == 1.0


def damaged(folder: Path, what: str) -> Path:
    path = folder / f"{what}.wav"
    if what == "empty":
        path.write_bytes(b"")
    elif what == "text":
        path.write_text("not audio at all" * 50)
    elif what == "no samples":
        soundfile.write(path, np.zeros(0, np.float32), 22050)
    elif what == "nan":
        soundfile.write(path, np.array([0.1, np.nan, 0.2], np.float32), 22050, subtype="FLOAT")
    elif what == "folder":
        path.mkdir()
    return path


def test_two_minutes_of_ogg_are_written(tmp_path: Path) -> None:
    # In a process of its own: what Vorbis does not bear ends it.
    run_program("long_ogg", str(tmp_path / "long.ogg"), fresh=True)

    assert soundfile.info(tmp_path / "long.ogg").duration == pytest.approx(120.0)


def test_samples_without_a_header_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "clip.raw").write_bytes(bytes(4000))

    with pytest.raises(DataError, match=r"clip\.raw is not audio"):
        read_audio(tmp_path / "clip.raw")


@pytest.mark.parametrize("what", ["missing", "empty", "text", "no samples", "nan", "folder"])
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, what: str) -> None:
    with pytest.raises(DataError, match=f"{what}.wav") as refused:
        read_audio(damaged(tmp_path, what))
    assert "<" not in refused.value.problem, "no Python object is shown"


def test_unwritable_targets_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'\.mp4'"):
        write_audio(tmp_path / "clip.mp4", tone(0.1, 22050), 22050)
    with pytest.raises(DataError, match="cannot be written"):
        write_audio(tmp_path / "none" / "clip.wav", tone(0.1, 22050), 22050)
    with pytest.raises(DataError, match="one channel"):
        write_audio(tmp_path / "clip.wav", np.zeros((2, 2)), 22050)
    assert list(tmp_path.iterdir()) == []


def test_int16_is_clipped_and_never_wraps() -> None:
    values = to_int16(np.array([0.0, 0.5, 1.0, 2.0, -1.0, -3.0, np.nan]))

    assert values.tolist() == [0, 16384, 32767, 32767, -32768, -32768, 0]


def sparse_wav(path: Path, seconds: int, rate: int = 44100) -> Path:
    """A second of a tone, and then silence that takes no room on the disk."""
    soundfile.write(path, tone(1.0, rate), rate, subtype="PCM_16")
    header = bytearray(path.read_bytes()[:44])
    size = seconds * rate * 2
    header[4:8], header[40:44] = (size + 36).to_bytes(4, "little"), size.to_bytes(4, "little")
    with path.open("r+b") as file:
        file.write(header)
        file.truncate(size + 44)
    return path


def test_of_a_long_file_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    """Five hours are 3 GB as floats, before they are resampled."""
    long = sparse_wav(tmp_path / "long.wav", 5 * 3600)

    with no_more_memory_than(150 * 2**20):
        wave = read_audio(long, first_s=60.0)

    assert len(wave) == 60 * 22050
    np.testing.assert_array_equal(wave[: 30 * 22050], read_audio(sparse_wav(tmp_path / "short.wav", 60))[: 30 * 22050])


@pytest.mark.parametrize(("longest", "words"), [({}, "18000 s long, more than 600 s"), ({"longest_s": 20.0}, "20 s")])
def test_a_file_that_is_too_long_is_refused_before_it_is_decoded(
    tmp_path: Path, longest: dict[str, float], words: str
) -> None:
    long = sparse_wav(tmp_path / "long.wav", 5 * 3600)

    with no_more_memory_than(50 * 2**20), pytest.raises(DataError, match=words):
        read_audio(long, **longest)


@pytest.mark.parametrize(("rate", "channels"), [(655_350, 1), (44_100, 9), (100, 1)])
def test_formats_that_no_speech_has_are_refused_before_they_are_decoded(
    tmp_path: Path, rate: int, channels: int
) -> None:
    soundfile.write(tmp_path / "odd.wav", np.zeros((1000, channels), np.int16), rate)

    with pytest.raises(DataError, match=rf"has {channels} channels of {rate} samples a second") as caught:
        read_audio(tmp_path / "odd.wav")

    assert "ffmpeg" in caught.value.hint


def test_a_small_file_of_many_channels_takes_the_memory_of_one(tmp_path: Path) -> None:
    """Silence on 8 channels: a few kilobytes of FLAC that are 370 MB when they are decoded at once."""
    with soundfile.SoundFile(tmp_path / "small.flac", "w", 192_000, 8, subtype="PCM_16") as file:
        for _ in range(60):
            file.write(np.ones((192_000, 8), np.int16))
    assert (tmp_path / "small.flac").stat().st_size < 200_000

    with no_more_memory_than(200 * 2**20):
        assert len(read_audio(tmp_path / "small.flac")) == 60 * 22050


def test_a_header_that_sends_the_reader_where_nothing_is_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by the fuzzer: an exception in a callback of libsndfile is printed with its traceback, and lost.
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    path = tmp_path / "clip.aiff"
    soundfile.write(path, np.full(4000, 0.1, np.float32), 22050)
    content = path.read_bytes()
    path.write_bytes(content[:35] + b"\xff\xff\xff\xff" + content[39:])

    with suppress(DataError):
        read_audio(path)

    assert printed == []
