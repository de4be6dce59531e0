"""Audio files: one place that reads them to mono float samples and writes them whole.

Reading refuses what cannot be used (missing, empty, not audio, not a number) with the reason; it does not check
loudness, length or silence, which are matters of the corpus. Rate, channels and length are bounded before anything is
decoded, and the channels are mixed block by block: a small file may claim to be a day of noise on 8 channels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import ArrayLike, NDArray

from myxtts.errors import DataError
from myxtts.files import replacing

_READABLE_HINT = "use a wav, flac, ogg or mp3 file; `ffmpeg -i CLIP CLIP.wav` converts most others"
_SUBTYPES = {".wav": "PCM_16", ".flac": "PCM_16", ".ogg": "VORBIS"}
_BLOCK_SAMPLES = 65536
"""Read and written at once: libsndfile's Vorbis encoder puts all it is given on the stack, and a minute is too much."""
LEAST_RATE, MOST_RATE, MOST_CHANNELS = 1000, 192_000, 8
LONGEST_SECONDS = 600.0
"""Of a file that is read whole, unless the caller says otherwise: 53 MB at 22,050 samples a second."""


def read_audio(
    path: str | os.PathLike[str] | BinaryIO,
    sample_rate: int = 22050,
    *,
    longest_s: float = LONGEST_SECONDS,
    first_s: float | None = None,
) -> NDArray[np.float32]:
    """The clip as mono samples in [-1, 1] at `sample_rate`, resampled with soxr at high quality where it has to be.

    One that is longer than `longest_s` is refused, unless only its `first_s` are wanted. An open file that can seek
    will do for its path; errors call it "the clip".
    """
    opened = None if isinstance(path, (str, os.PathLike)) else path
    path = Path(path) if isinstance(path, (str, os.PathLike)) else Path("the clip")
    mono, source_rate = _decode(path, opened, longest_s, first_s)
    if mono.shape[0] == 0:
        raise DataError(f"{path} has no samples", hint="record the clip again, or remove it from the metadata")
    if not np.isfinite(mono).all():
        raise DataError(f"{path} has samples that are not numbers (NaN or infinite)", hint="export the clip again")
    if source_rate != sample_rate:
        mono = soxr.resample(mono, source_rate, sample_rate, quality="HQ")
        if mono.shape[0] == 0:
            raise DataError(
                f"{path} is shorter than one sample at {sample_rate} Hz", hint="remove it from the metadata"
            )
    return np.clip(mono, -1.0, 1.0).astype(np.float32, copy=False)


class _AnySeek:
    """A file that stays where it is when it is sent where there is nothing: libsndfile goes where a damaged header
    says, and an exception in its callback would be printed with its traceback and lost."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError):
            return self._file.tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def sound_in(file: BinaryIO) -> soundfile.SoundFile:
    """An open file as libsndfile reads it."""
    return soundfile.SoundFile(_AnySeek(file))


def sound_error(error: Exception) -> str:
    """What libsndfile says; its whole message begins with the Python object that it was given."""
    return str(error.error_string if isinstance(error, soundfile.LibsndfileError) else error).strip()


@contextmanager
def opened_audio(path: Path, opened: BinaryIO | None = None) -> Iterator[soundfile.SoundFile]:
    """The file, or one that is open already, for reading; what it cannot do, then or later, is a `DataError`."""
    try:
        # Opened by us, so that a missing or forbidden file keeps the system's own reason.
        with nullcontext(opened) if opened else path.open("rb") as file, sound_in(file) as sound:
            _refuse_format(path, int(sound.samplerate), int(sound.channels))
            yield sound
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}", hint="check the path and its rights"
        ) from error
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:  # TypeError: .raw has no header
        raise DataError(
            f"{path} is not audio that can be decoded: {sound_error(error)}", hint=_READABLE_HINT
        ) from error


def mono_blocks(sound: soundfile.SoundFile, wanted: int) -> Iterator[NDArray[np.float32]]:
    """The next `wanted` frames, all channels as one, or as many as there are, block by block."""
    while wanted > 0 and len(block := sound.read(min(wanted, _BLOCK_SAMPLES), dtype="float32", always_2d=True)):
        yield block[:, 0] if block.shape[1] == 1 else block.mean(axis=1)
        wanted -= len(block)


def _decode(
    path: Path, opened: BinaryIO | None, longest_s: float, first_s: float | None
) -> tuple[NDArray[np.float32], int]:
    """Mono samples and their rate."""
    with opened_audio(path, opened) as sound:
        rate = int(sound.samplerate)
        if first_s is None and sound.frames > longest_s * rate:
            raise DataError(
                f"{path} is {sound.frames / rate:.0f} s long, more than {longest_s:g} s",
                hint="cut it: `ffmpeg -i CLIP -t 60 SHORT.wav` keeps the first minute",
            )
        wanted = sound.frames if first_s is None else min(sound.frames, int(first_s * rate))
        return np.concatenate([np.zeros(0, np.float32), *mono_blocks(sound, wanted)]), rate


def _refuse_format(path: Path, rate: int, channels: int) -> None:
    if not LEAST_RATE <= rate <= MOST_RATE or channels > MOST_CHANNELS:
        raise DataError(
            f"{path} has {channels} channels of {rate} samples a second, must have at most {MOST_CHANNELS} of "
            f"{LEAST_RATE} to {MOST_RATE}",
            hint="`ffmpeg -i CLIP -ac 1 -ar 48000 CLIP.wav` converts it",
        )


def resampled(samples: ArrayLike, sample_rate: float, wanted: float) -> NDArray[np.float32]:
    """Mono samples at another rate; as they are where it is theirs."""
    mono = np.asarray(samples, np.float32)
    return mono if sample_rate == wanted else np.asarray(soxr.resample(mono, sample_rate, wanted), np.float32)


def write_audio(path: str | os.PathLike[str], samples: ArrayLike, sample_rate: int) -> None:
    """Write mono samples (float in [-1, 1], or int16) as wav, flac or ogg by the suffix; whole or not at all."""
    target = Path(path)
    subtype = _SUBTYPES.get(target.suffix.lower())
    if subtype is None:
        raise DataError(
            f"{target.name} has the suffix {target.suffix!r}, must be one of {', '.join(_SUBTYPES)}",
            hint="name the file .wav, .flac or .ogg",
        )
    mono = np.asarray(samples)
    if mono.ndim != 1:
        raise DataError(f"samples for {target.name} have shape {mono.shape}, must be one channel", hint="pass one clip")
    if mono.dtype != np.int16:
        mono = to_int16(mono)
    try:
        with replacing(target, durable=False) as part:
            options = {"subtype": subtype, "format": target.suffix[1:].upper()}
            with soundfile.SoundFile(part, "w", sample_rate, 1, **options) as file:
                for first in range(0, len(mono), _BLOCK_SAMPLES):
                    file.write(mono[first : first + _BLOCK_SAMPLES])
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(
            f"{target} cannot be written: {error}", hint="check that the folder exists and has room"
        ) from error


def to_int16(samples: ArrayLike) -> NDArray[np.int16]:
    """Float samples in [-1, 1] as 16-bit PCM; what lies outside is clipped, what is no number becomes silence."""
    clean = np.nan_to_num(np.asarray(samples, np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    pcm: NDArray[np.int16] = np.clip(np.rint(clean * 32768.0), -32768, 32767).astype(np.int16)
    return pcm


def from_int16(samples: ArrayLike) -> NDArray[np.float32]:
    """16-bit PCM as float samples in [-1, 1); floats stay what they are."""
    given = np.asarray(samples)
    return given.astype(np.float32) / np.float32(32768.0) if given.dtype == np.int16 else given.astype(np.float32)


def padded_rows(rows: Sequence[NDArray[Any]], length: int | None = None) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Arrays of unlike length as one, zeros behind them up to the longest or to `length`; and their lengths."""
    lengths = np.array([len(row) for row in rows], np.int32)
    batch = np.zeros((len(rows), int(lengths.max()) if length is None else length, *rows[0].shape[1:]), rows[0].dtype)
    for number, row in enumerate(rows):
        batch[number, : len(row)] = row
    return batch, lengths
