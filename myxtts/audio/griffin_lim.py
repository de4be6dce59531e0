"""From log mels back to waves without a neural vocoder: the inverse of `mel`, as far as phases can be guessed.

Mel power goes to the linear bins without ever going negative; the fast Griffin-Lim iteration (momentum 0.99)
then finds phases that fit it. Batched, deterministic, on whatever device the call runs. Only for windows that are a
multiple of the hop, as those of XTTS's mels are.

Shapes: B clips, S samples, T frames, W window samples, F frequency bins, M mel channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import DVAE_MEL, MelSettings, Tensor, analysis_window, checked_norms, mel_filterbank
from myxtts.errors import ConfigError

_SPREAD_ITERATIONS = 30
_TINY = 1e-10


class GriffinLim:
    """Log mels to waves, compiled once for all shapes."""

    def __init__(
        self,
        settings: MelSettings = DVAE_MEL,
        *,
        channel_norms: Sequence[float] | NDArray[np.float32] | None = None,
        iterations: int = 32,
        momentum: float = 0.99,
        seed: int = 0,
    ) -> None:
        if settings.win_samples != settings.n_fft or settings.win_samples % settings.hop_samples:
            raise ConfigError(
                f"Griffin-Lim got a window of {settings.win_samples}, an FFT of {settings.n_fft} and a hop of "
                f"{settings.hop_samples} samples; window and FFT must be equal and a multiple of the hop",
                hint="invert the DVAE's mel (1024, 1024, 256), not the conditioning mel",
            )
        if iterations < 0 or not 0.0 <= momentum < 1.0:
            raise ConfigError(
                f"Griffin-Lim got {iterations} iterations and momentum {momentum}, must be >= 0 and in [0, 1)",
                hint="the defaults are 32 and 0.99",
            )
        self.settings = settings
        self.channel_norms = checked_norms(channel_norms, settings.n_mels)
        self.iterations, self.momentum, self.seed = iterations, momentum, seed
        self._filters_FM = mel_filterbank(settings)
        self._window_W = analysis_window(settings)
        self._compiled: Any = None

    def __call__(self, mel_BTM: Any, mel_lengths_B: Any = None) -> Tensor:
        """Waves [B, (T - 1) * hop], silent beyond each clip's own (length - 1) * hop samples."""
        import tensorflow as tf

        mel_BTM = tf.convert_to_tensor(mel_BTM, tf.float32)
        if mel_lengths_B is None:
            mel_lengths_B = tf.fill([tf.shape(mel_BTM)[0]], tf.shape(mel_BTM)[1])
        if self._compiled is None:
            self._compiled = tf.function(self.wave, reduce_retracing=True, autograph=False)
        return self._compiled(mel_BTM, tf.convert_to_tensor(mel_lengths_B, tf.int32))

    def wave(self, mel_BTM: Tensor, mel_lengths_B: Tensor) -> Tensor:
        """`__call__` uncompiled, to be traced into a function of the caller's."""
        import tensorflow as tf

        inside_BT = tf.sequence_mask(mel_lengths_B, tf.shape(mel_BTM)[1])
        magnitude_BTF = self._linear_magnitude(mel_BTM) * tf.cast(inside_BT, tf.float32)[:, :, None]
        spectrum_BTF = self._with_phases(magnitude_BTF)
        half = self.settings.n_fft // 2
        samples = (tf.shape(mel_BTM)[1] - 1) * self.settings.hop_samples
        wave_BS = self._overlap_add(spectrum_BTF)[:, half : half + samples]
        own_samples_B = tf.maximum(mel_lengths_B - 1, 0) * self.settings.hop_samples
        return wave_BS * tf.cast(tf.sequence_mask(own_samples_B, samples), tf.float32)

    def _linear_magnitude(self, mel_BTM: Tensor) -> Tensor:
        """Non-negative linear bins whose mel is the given one: multiplicative updates from the transposed filters."""
        import tensorflow as tf

        if self.channel_norms is not None:
            mel_BTM = mel_BTM * self.channel_norms
        target_BTM = tf.exp(mel_BTM)
        filters_FM, filters_MF = self._filters_FM, np.ascontiguousarray(self._filters_FM.T)
        numerator_BTF = tf.matmul(target_BTM, filters_MF)
        power_BTF = numerator_BTF
        for _ in range(_SPREAD_ITERATIONS):
            back_BTF = tf.matmul(tf.matmul(power_BTF, filters_FM), filters_MF)
            power_BTF = power_BTF * numerator_BTF / (back_BTF + _TINY)
        return tf.sqrt(power_BTF)

    def _with_phases(self, magnitude_BTF: Tensor) -> Tensor:
        import tensorflow as tf

        shape = tf.shape(magnitude_BTF)
        angle = tf.random.stateless_uniform(shape, [self.seed, 0], 0.0, 2.0 * np.pi)
        spectrum = tf.complex(magnitude_BTF * tf.cos(angle), magnitude_BTF * tf.sin(angle))
        rebuilt_before = tf.zeros_like(spectrum)
        step = tf.constant(0)
        # The gradient of no one is asked for here; a while loop keeps the graph small for any number of iterations.
        _, spectrum, _ = tf.while_loop(
            lambda step, *_: step < self.iterations,
            lambda step, spectrum, before: (step + 1, *self._iterate(magnitude_BTF, spectrum, before)),
            (step, spectrum, rebuilt_before),
        )
        return spectrum

    def _iterate(self, magnitude_BTF: Tensor, spectrum: Tensor, rebuilt_before: Tensor) -> tuple[Tensor, Tensor]:
        import tensorflow as tf

        rebuilt = tf.signal.rfft(self._frames(self._overlap_add(spectrum)))
        pushed = rebuilt + self.momentum * (rebuilt - rebuilt_before)
        real, imag = tf.math.real(pushed), tf.math.imag(pushed)
        gain = magnitude_BTF * tf.math.rsqrt(tf.maximum(real * real + imag * imag, 1e-20))
        return tf.complex(real * gain, imag * gain), rebuilt

    def _overlap_add(self, spectrum_BTF: Tensor) -> Tensor:
        """The signal [B, (T + steps - 1) * hop] whose frames come closest to these spectra, least squares."""
        import tensorflow as tf

        frames_BTW = tf.signal.irfft(spectrum_BTF, [self.settings.n_fft]) * self._window_W
        weight_1TW = tf.ones_like(frames_BTW[:1, :, :1]) * (self._window_W * self._window_W)
        return self._shift_and_add(frames_BTW) / tf.maximum(self._shift_and_add(weight_1TW), 1e-3)

    def _shift_and_add(self, frames_BTW: Tensor) -> Tensor:
        import tensorflow as tf

        hop, steps = self.settings.hop_samples, self.settings.win_samples // self.settings.hop_samples
        batch, frames = tf.shape(frames_BTW)[0], tf.shape(frames_BTW)[1]
        shifted = [
            tf.pad(frames_BTW[:, :, i * hop : (i + 1) * hop], [[0, 0], [i, steps - 1 - i], [0, 0]])
            for i in range(steps)
        ]
        return tf.reshape(tf.add_n(shifted), [batch, (frames + steps - 1) * hop])

    def _frames(self, signal_BS: Tensor) -> Tensor:
        import tensorflow as tf

        hop, steps = self.settings.hop_samples, self.settings.win_samples // self.settings.hop_samples
        blocks = tf.reshape(signal_BS, [tf.shape(signal_BS)[0], -1, hop])
        frames = tf.shape(blocks)[1] - (steps - 1)
        parts = [blocks[:, i : i + frames] * self._window_W[i * hop : (i + 1) * hop] for i in range(steps)]
        return tf.concat(parts, axis=2)


@lru_cache(maxsize=4)
def _default(iterations: int, seed: int) -> GriffinLim:
    return GriffinLim(iterations=iterations, seed=seed)


def griffin_lim(mel_BTM: Any, mel_lengths_B: Any = None, *, iterations: int = 32, seed: int = 0) -> Tensor:
    """Waves of XTTS's own log mels (without channel norms) at 22,050 samples a second."""
    return _default(iterations, seed)(mel_BTM, mel_lengths_B)
