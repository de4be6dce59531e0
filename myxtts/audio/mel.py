"""Log mel spectrograms as XTTS hears them: waves of several lengths in, frames that no padding can change out.

XTTS's DVAE and conditioning encoder read torchaudio's MelSpectrogram with its defaults: HTK mel scale, Slaney area
norm, power 2, periodic Hann window, reflect padding, then log(max(mel, 1e-5)) and a division by a constant per channel.
TensorFlow is imported only when a mel is computed, so that readers of the constants stay light.

Shapes: B clips, S samples, T frames, W window samples, F frequency bins, M mel channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import ConfigError

SAMPLE_RATE = 22050
HOP = 256
N_FFT = 1024
WIN = 1024
N_MELS = 80

_PIECE_FRAMES = 384  # 1.5 MB of windowed frames
_FILTER_GROUPS = 5

Tensor = Any  # a tf.Tensor; TensorFlow ships no usable types


@dataclass(frozen=True, kw_only=True)
class MelSettings:
    """Everything that fixes a mel spectrogram. The defaults are those of XTTS v2's DVAE."""

    sample_rate: int = SAMPLE_RATE
    n_fft: int = N_FFT
    hop_samples: int = HOP
    win_samples: int = WIN
    n_mels: int = N_MELS
    f_min_hz: float = 0.0
    f_max_hz: float = 8000.0
    mel_scale: Literal["htk", "slaney"] = "htk"
    area_norm: bool = True
    """Slaney's norm: every triangle has the same area, not the same height."""
    window: Literal["hann", "hamming"] = "hann"
    floor: float = 1e-5
    """Smallest mel power before the logarithm; silence is log(floor)."""

    def __post_init__(self) -> None:
        if not 0 < self.win_samples <= self.n_fft:
            raise ConfigError(
                f"win_samples is {self.win_samples}, must be in 1..n_fft ({self.n_fft})",
                hint="XTTS uses a window of 1024 samples in an FFT of 1024 (DVAE) or 2048 (conditioning)",
            )
        if not 0 <= self.f_min_hz < self.f_max_hz <= self.sample_rate / 2:
            raise ConfigError(
                f"mel range {self.f_min_hz}..{self.f_max_hz} Hz does not fit below {self.sample_rate / 2} Hz",
                hint="XTTS uses 0..8000 Hz at 22,050 samples a second",
            )


DVAE_MEL = MelSettings()
CONDITIONING_MEL = MelSettings(n_fft=2048)
"""What XTTS v2's perceiver conditioning reads: the same frames, in a longer FFT."""
SPEAKER_MEL = MelSettings(
    sample_rate=16000,
    n_fft=512,
    hop_samples=160,
    win_samples=400,
    n_mels=64,
    area_norm=False,
    window="hamming",
    floor=1e-6,
)
"""What XTTS v2's speaker encoder reads, after pre-emphasis; it adds 1e-6 before its logarithm, so take `power_mel`."""
SPEAKER_PREEMPHASIS = 0.97


def _hz_to_mel(hz: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + hz / 700.0)
    # Slaney: linear below 1 kHz (200/3 Hz a mel), then 27 mels for each factor of 6.4.
    linear = hz * 3.0 / 200.0
    return np.where(hz < 1000.0, linear, 15.0 + 27.0 * np.log(np.maximum(hz, 1000.0) / 1000.0) / np.log(6.4))


def _mel_to_hz(mel: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * np.exp((np.maximum(mel, 15.0) - 15.0) * np.log(6.4) / 27.0))


def mel_filterbank(settings: MelSettings = DVAE_MEL) -> NDArray[np.float32]:
    """Triangular filters as a matrix [F, M] with F = n_fft / 2 + 1."""
    bins_hz = np.linspace(0.0, settings.sample_rate / 2, settings.n_fft // 2 + 1)
    ends_mel = _hz_to_mel(np.array([settings.f_min_hz, settings.f_max_hz]), settings.mel_scale)
    edges_hz = _mel_to_hz(np.linspace(ends_mel[0], ends_mel[1], settings.n_mels + 2), settings.mel_scale)
    low, centre, high = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising = (bins_hz[:, None] - low) / (centre - low)
    falling = (high - bins_hz[:, None]) / (high - centre)
    filters_FM = np.maximum(0.0, np.minimum(rising, falling))
    if settings.area_norm:
        filters_FM *= 2.0 / (high - low)
    return filters_FM.astype(np.float32)


def analysis_window(settings: MelSettings = DVAE_MEL) -> NDArray[np.float32]:
    """The periodic window, [W]."""
    phase = 2.0 * np.pi * np.arange(settings.win_samples) / settings.win_samples
    offset = {"hann": 0.5, "hamming": 0.54}[settings.window]
    return (offset - (1.0 - offset) * np.cos(phase)).astype(np.float32)


def frame_count(samples: Any, hop_samples: int = HOP) -> Any:
    """Frames of a clip, or of each of several, of so many samples: one at every hop, the first and the last centred on
    the clip's ends."""
    return samples // hop_samples + 1


class MelSpectrogram:
    """Log mel spectrograms on whatever device the call runs.

    `channel_norms` are XTTS's mel norms (one positive number a channel): log mels are divided by them.
    By default a batch is computed in pieces that fit a CPU's cache, more than twice as fast there. `whole` computes it
    in one: the better choice on a GPU, differentiable, and compilable by XLA.
    """

    def __init__(
        self,
        settings: MelSettings = DVAE_MEL,
        *,
        channel_norms: Sequence[float] | NDArray[np.float32] | None = None,
        whole: bool = False,
    ) -> None:
        self.settings = settings
        self.channel_norms = checked_norms(channel_norms, settings.n_mels)
        # Pieces are cut from blocks of one hop.
        self._whole = whole or settings.win_samples % settings.hop_samples != 0
        self._window_W = analysis_window(settings)
        self._filters_FM = mel_filterbank(settings)
        self._groups = _filter_groups(self._filters_FM)
        self._compiled: Any = None

    def __call__(self, wave_BS: Any, wave_lengths_B: Any) -> tuple[Tensor, Tensor]:
        """`log_mel`, compiled once for any batch of waves."""
        import tensorflow as tf

        if self._compiled is None:
            self._compiled = tf.function(self.log_mel, reduce_retracing=True, autograph=False)
        mel_BTM, mel_lengths_B = self._compiled(
            tf.convert_to_tensor(wave_BS), tf.convert_to_tensor(wave_lengths_B, tf.int32)
        )
        return mel_BTM, mel_lengths_B

    def log_mel(self, wave_BS: Tensor, wave_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Log mels [B, T, M] and their lengths [B].

        Waves are float in [-1, 1] or int16. What lies beyond a clip's length is never read; frames beyond a
        clip's own end hold silence. T = S // hop + 1.
        """
        import tensorflow as tf

        power_BTM, mel_lengths_B = self.power_mel(wave_BS, wave_lengths_B)
        log_BTM = tf.math.log(tf.maximum(power_BTM, self.settings.floor))
        if self.channel_norms is not None:
            log_BTM = log_BTM / self.channel_norms
        return log_BTM, mel_lengths_B

    def power_mel(self, wave_BS: Tensor, wave_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Mel power before the logarithm, zero beyond each clip's own frames, and the lengths."""
        import tensorflow as tf

        lengths_B = tf.cast(wave_lengths_B, tf.int32)
        mel_lengths_B = frame_count(lengths_B, self.settings.hop_samples)
        # torchaudio pads by n_fft / 2 and centres the window in the FFT; zeros around a window change no power.
        before = self.settings.n_fft // 2 - (self.settings.n_fft - self.settings.win_samples) // 2
        after = self.settings.win_samples - before
        samples = tf.shape(wave_BS)[1]
        frames = frame_count(samples, self.settings.hop_samples)
        # Up to a whole number of hops, so that the pieces are cut without a copy.
        spare = 0 if self._whole else frames * self.settings.hop_samples - samples
        padded_BS = _reflect_at_own_ends(as_float(wave_BS), lengths_B, before, after, spare)
        mel_BTM = self._mel_whole(padded_BS) if self._whole else self._mel_in_pieces(padded_BS, frames)
        inside_BT = tf.sequence_mask(mel_lengths_B, frames)
        return tf.where(inside_BT[:, :, None], mel_BTM, 0.0), mel_lengths_B

    def _mel_whole(self, padded_BS: Tensor) -> Tensor:
        import tensorflow as tf

        frames_BTW = tf.signal.frame(padded_BS, self.settings.win_samples, self.settings.hop_samples)
        spectrum_BTF = tf.signal.rfft(frames_BTW * self._window_W, [self.settings.n_fft])
        power_BTF = tf.square(tf.math.real(spectrum_BTF)) + tf.square(tf.math.imag(spectrum_BTF))
        return tf.matmul(power_BTF, self._filters_FM)

    def _mel_in_pieces(self, padded_BS: Tensor, frames: Tensor) -> Tensor:
        """The clips' blocks of one hop in one row, cut into pieces; the few frames across two clips are dropped."""
        import tensorflow as tf

        hop, steps = self.settings.hop_samples, self.settings.win_samples // self.settings.hop_samples
        batch, rows_a_clip = tf.shape(padded_BS)[0], frames + steps
        blocks = tf.reshape(padded_BS, [batch * rows_a_clip, hop])
        whole_frames = batch * rows_a_clip - (steps - 1)
        pieces = (whole_frames + _PIECE_FRAMES - 1) // _PIECE_FRAMES
        results = tf.TensorArray(tf.float32, size=pieces, infer_shape=False, element_shape=[None, self.settings.n_mels])

        def compute(piece: Tensor, results: Tensor) -> tuple[Tensor, Tensor]:
            start = piece * _PIECE_FRAMES
            count = tf.minimum(_PIECE_FRAMES, whole_frames - start)
            return piece + 1, results.write(piece, self._mel_piece(blocks, start, count))

        _, results = tf.while_loop(
            lambda piece, _: piece < pieces, compute, (tf.constant(0), results), parallel_iterations=2
        )
        mel = tf.pad(results.concat(), [[0, steps - 1], [0, 0]])
        return tf.reshape(mel, [batch, rows_a_clip, self.settings.n_mels])[:, :frames]

    def _mel_piece(self, blocks: Tensor, start: Tensor, count: Tensor) -> Tensor:
        import tensorflow as tf

        hop = self.settings.hop_samples
        parts = [
            blocks[start + i : start + i + count] * self._window_W[i * hop : (i + 1) * hop]
            for i in range(self.settings.win_samples // hop)
        ]
        spectrum = tf.signal.rfft(tf.concat(parts, axis=1), [self.settings.n_fft])
        # The same memory read as [re, im, re, im, ...]: no copy, and the filters add the two squares up.
        numbers = tf.reshape(tf.bitcast(spectrum, tf.float32), [count, self.settings.n_fft + 2])
        mels = [tf.matmul(tf.square(numbers[:, first:last]), filters) for first, last, filters in self._groups]
        return tf.concat(mels, axis=1)


def _filter_groups(filters_FM: NDArray[np.float32]) -> list[tuple[int, int, NDArray[np.float32]]]:
    """Neighbouring filters with only the bins that they read, for interleaved spectra: a quarter of the products."""
    groups = []
    for channels in np.array_split(np.arange(filters_FM.shape[1]), _FILTER_GROUPS):
        used = np.flatnonzero(filters_FM[:, channels].any(axis=1))
        first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 1)
        groups.append((2 * first, 2 * last, np.repeat(filters_FM[first:last, channels], 2, axis=0)))
    return groups


def checked_norms(norms: Sequence[float] | NDArray[np.float32] | None, n_mels: int) -> NDArray[np.float32] | None:
    """One divisor a channel as an array, or None."""
    if norms is None:
        return None
    norms_M = np.asarray(norms, np.float32)
    if norms_M.shape != (n_mels,) or not np.all(np.isfinite(norms_M)) or np.any(norms_M == 0):
        raise ConfigError(
            f"channel_norms has shape {norms_M.shape}, must be {n_mels} finite numbers other than 0",
            hint="XTTS's mel_stats has one number for each of its 80 mel channels",
        )
    return norms_M


def as_float(wave_BS: Tensor) -> Tensor:
    """Waves in [-1, 1] of floats or of int16."""
    import tensorflow as tf

    if wave_BS.dtype == tf.int16:
        return tf.cast(wave_BS, tf.float32) * (1.0 / 32768.0)
    return tf.cast(wave_BS, tf.float32)


def _reflect_at_own_ends(wave_BS: Tensor, lengths_B: Tensor, before: int, after: int, spare: Any) -> Tensor:
    """Each clip with `before` and `after` samples of its own reflection; only the samples that a clip owns are read.

    `spare` further samples at the end hold nothing that a frame of a clip reaches.
    """
    import tensorflow as tf

    batch, samples = tf.shape(wave_BS)[0], tf.shape(wave_BS)[1]
    left = tf.range(-before, 0)[None, :] + tf.zeros_like(lengths_B)[:, None]
    right = lengths_B[:, None] + tf.range(after)[None, :]
    # A reflected signal repeats after 2 (length - 1) samples; a clip of one sample repeats that one.
    period = tf.maximum(2 * (lengths_B - 1), 1)[:, None]
    wrapped = tf.math.floormod(tf.concat([left, right], axis=1), period)
    edges = tf.gather(
        wave_BS, tf.minimum(wrapped, period - wrapped) * tf.cast(lengths_B > 1, tf.int32)[:, None], batch_dims=1
    )
    edges = edges * tf.cast(lengths_B > 0, edges.dtype)[:, None]
    room = tf.concat([edges[:, :before], wave_BS, tf.zeros([batch, after + spare], wave_BS.dtype)], axis=1)
    width = before + samples + after + spare
    where = tf.range(batch)[:, None] * width + before + right
    flat = tf.tensor_scatter_nd_update(
        tf.reshape(room, [-1]), tf.reshape(where, [-1, 1]), tf.reshape(edges[:, before:], [-1])
    )
    return tf.reshape(flat, [batch, width])
