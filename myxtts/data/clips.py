"""Turns one audio file into 16-bit mono samples at 22.05 kHz, or refuses it with the reason.

The header is checked before anything is decoded, so a file that claims to be a day long costs nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.audio.io import read_audio, sound_error, sound_in, to_int16
from myxtts.audio.loudness import normalise_loudness
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.data import DataConfig
from myxtts.errors import DataError

_SILENT_PEAK = 10 ** (-60 / 20)
_CLIPPED_LEVEL = 0.999
_CLIPPED_SHARE = 0.01
_TRIM_BELOW_PEAK_DB = 40.0
_TRIM_FRAME_SAMPLES = 256
_TRIM_KEEP_FRAMES = 4
_MISSING_SHARE = 0.02

_WAV_DATA_SIZE = re.compile(r"^data\s*: (\d+) \(should be (\d+)\)", re.MULTILINE)


def load_clip(path: str, config: DataConfig) -> NDArray[np.int16]:
    """The clip as it goes into a shard; raises DataError with the reason for a refusal."""
    claimed_seconds = _check_header(path, config)
    samples = read_audio(path, SAMPLE_RATE, longest_s=config.max_clip_seconds)
    if len(samples) < (1 - _MISSING_SHARE) * claimed_seconds * SAMPLE_RATE - _TRIM_FRAME_SAMPLES:
        raise _refused(f"truncated: {len(samples) / SAMPLE_RATE:.2f} s of {claimed_seconds:.2f} s are there")
    _check_samples(samples)
    if config.trim_silence:
        samples = trim_silence(samples)
    seconds = len(samples) / SAMPLE_RATE
    if seconds < config.min_clip_seconds:
        raise _refused(f"{seconds:.2f} s of sound, shorter than --min-clip-seconds {config.min_clip_seconds:g}")
    if config.normalise_loudness:
        samples = normalise_loudness(samples)
    return to_int16(samples)


def trim_silence(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut both ends where the level stays 40 dB below the loudest frame, keeping 46 ms of margin."""
    frames = len(samples) // _TRIM_FRAME_SAMPLES
    if frames < 2:
        return samples
    framed = samples[: frames * _TRIM_FRAME_SAMPLES].reshape(frames, _TRIM_FRAME_SAMPLES)
    level = np.sqrt(np.mean(np.square(framed), axis=1))
    loud = np.flatnonzero(level > level.max() * 10 ** (-_TRIM_BELOW_PEAK_DB / 20))
    if not len(loud):
        return samples
    first = max(0, int(loud[0]) - _TRIM_KEEP_FRAMES) * _TRIM_FRAME_SAMPLES
    last = (int(loud[-1]) + 1 + _TRIM_KEEP_FRAMES) * _TRIM_FRAME_SAMPLES
    return samples[first:last]


def _check_header(path: str, config: DataConfig) -> float:
    """Seconds of audio that the header claims; refuses what it rules out."""
    try:
        with Path(path).open("rb") as file:
            if not file.read(1):
                raise _refused("the file is empty")
            file.seek(0)
            with sound_in(file) as sound:
                seconds, extra = float(sound.frames / max(sound.samplerate, 1)), sound.extra_info
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror or error}") from error
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        raise _refused(f"not audio that can be decoded: {sound_error(error)[:200]}") from error
    cut = _WAV_DATA_SIZE.search(extra)
    # A size of 0 or near 4 GB is what programs write that stream to a pipe: the length was not known.
    if cut and 0 < int(cut[1]) < 0x7FFFF000 and int(cut[2]) < int(cut[1]):
        raise _refused(f"truncated: {cut[2]} of {cut[1]} bytes of samples are there")
    if seconds == 0:
        raise _refused("there are no samples in the file")
    if seconds > config.max_clip_seconds:
        raise _refused(f"{seconds:.2f} s, longer than --max-clip-seconds {config.max_clip_seconds:g}")
    if seconds < config.min_clip_seconds:
        raise _refused(f"{seconds:.2f} s, shorter than --min-clip-seconds {config.min_clip_seconds:g}")
    return seconds


def _check_samples(samples: NDArray[np.float32]) -> None:
    loudness = np.abs(samples)
    peak = float(loudness.max(initial=0.0))
    if peak < _SILENT_PEAK:
        raise _refused(f"silent: the loudest sample is {peak:.5f} of full scale")
    clipped = float(np.mean(loudness >= _CLIPPED_LEVEL))
    if clipped > _CLIPPED_SHARE:
        raise _refused(f"clipped: {clipped:.0%} of the samples are at full scale")


def _refused(reason: str) -> DataError:
    return DataError(reason, hint="record or export the clip again, or remove its line")
