"""Clips of every kind: which are taken, at what shape, and why the others are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.audio.loudness import normalise_loudness
from myxtts.config.data import DataConfig
from myxtts.data.clips import load_clip, trim_silence
from myxtts.errors import DataError
from tests.corpus_maker import tone
from tests.limits import no_more_memory_than


def load(path: Path, **changes: object) -> np.ndarray:
    return load_clip(str(path), DataConfig(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000, 192000])
def test_any_rate_becomes_22050(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(1.0, rate), rate)

    wave = load(tmp_path / "a.wav")

    assert wave.dtype == np.int16
    assert abs(len(wave) - 22050) <= 2


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
def test_any_depth_gives_nearly_the_same_samples(tmp_path: Path, subtype: str) -> None:
    samples = tone(1.0)
    soundfile.write(tmp_path / "a.wav", samples, 22050, subtype=subtype)

    wave = load(tmp_path / "a.wav").astype(np.float32) / 32768

    assert np.abs(wave - samples).max() < 0.02


def test_stereo_is_mixed_down(tmp_path: Path) -> None:
    left, right = tone(1.0), tone(1.0, pitch=300)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], axis=1), 22050)

    wave = load(tmp_path / "a.wav").astype(np.float32) / 32768

    np.testing.assert_allclose(wave, (left + right) / 2, atol=1e-3)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _halved(path: Path, suffix: str) -> None:
    whole = path.with_name(f"whole{suffix}")
    soundfile.write(whole, tone(2.0), 22050)
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


BAD = {
    "empty file": (lambda path: _write_bytes(path, b""), "empty"),
    "not audio": (lambda path: _write_bytes(path, b"<html>404</html>" * 100), "not audio"),
    "header only": (lambda path: soundfile.write(path, np.zeros(0, np.float32), 22050), "no samples"),
    "silent": (lambda path: soundfile.write(path, np.zeros(22050, np.float32), 22050), "silent"),
    "clipped": (lambda path: soundfile.write(path, np.clip(tone(1.0) * 20, -1, 1), 22050), "clipped"),
    "not a number": (
        lambda path: soundfile.write(path, np.full(22050, np.nan, np.float32), 22050, subtype="FLOAT"),
        "NaN",
    ),
    "too short": (lambda path: soundfile.write(path, tone(0.1), 22050), "--min-clip-seconds"),
    "too long": (lambda path: soundfile.write(path, tone(21.0), 22050), "--max-clip-seconds"),
    "claims one sample a second": (lambda path: soundfile.write(path, tone(1.0), 1), "--max-clip-seconds"),
    "missing": (lambda path: None, "No such file"),
    "a folder": (lambda path: path.mkdir(), "cannot be read"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_learnt_from_is_refused_with_its_reason(tmp_path: Path, kind: str) -> None:
    make, reason = BAD[kind]
    make(tmp_path / "a.wav")

    with pytest.raises(DataError, match=reason):
        load(tmp_path / "a.wav")


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".mp3"])
def test_a_truncated_clip_is_refused(tmp_path: Path, suffix: str) -> None:
    _halved(tmp_path / f"a{suffix}", suffix)

    with pytest.raises(DataError, match=r"truncated|decoded|no samples"):
        load(tmp_path / f"a{suffix}")


def test_a_wav_of_unknown_length_as_pipes_write_it_is_taken(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(1.0), 22050)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = content[4:8] = b"\xff\xff\xff\xff"
    (tmp_path / "a.wav").write_bytes(content)

    assert len(load(tmp_path / "a.wav")) == 22050


def test_trimming_cuts_both_ends_and_keeps_a_margin() -> None:
    quiet = np.zeros(11025, np.float32)
    trimmed = trim_silence(np.concatenate([quiet, tone(1.0), quiet]))

    assert 22050 <= len(trimmed) <= 22050 + 2 * 5 * 256


def test_trimming_counts_towards_the_shortest_length(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.concatenate([tone(0.2), np.zeros(44100, np.float32)]), 22050)

    with pytest.raises(DataError, match="of sound, shorter"):
        load(tmp_path / "a.wav", trim_silence=True)


@pytest.mark.parametrize("level", [0.01, 0.1, 0.9])
def test_loudness_comes_out_alike_and_below_full_scale(level: float) -> None:
    reference = normalise_loudness(tone(1.0, level=0.3))
    other = normalise_loudness(tone(1.0, level=level))

    np.testing.assert_allclose(other, reference, rtol=1e-3, atol=1e-5)
    assert np.abs(other).max() < 1.0


def test_a_small_file_of_many_fast_channels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    """15 seconds of 8 channels at FLAC's highest rate are 315 MB of floats."""
    with soundfile.SoundFile(tmp_path / "a.flac", "w", 655_350, 8, subtype="PCM_16") as file:
        for _ in range(15):
            file.write(np.ones((655_350, 8), np.int16))

    with no_more_memory_than(100 * 2**20), pytest.raises(DataError, match="8 channels of 655350 samples a second"):
        load(tmp_path / "a.flac")
