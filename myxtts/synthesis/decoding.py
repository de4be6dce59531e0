"""From what the GPT generated to sound: HiFi-GAN where the voice has one, else mels and Griffin-Lim.

One piece at a time: Griffin-Lim's first phases depend on the batch's shape, and a piece must sound the same whatever
was spoken beside it. Shapes: N codes, D width of a latent, T mel frames, M mel channels, V speaker vector, S samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.audio.griffin_lim import GriffinLim
from myxtts.audio.mel import HOP, SAMPLE_RATE, MelSpectrogram
from myxtts.audio.postfilter import Postfilter
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.models.dvae import DVAE
from myxtts.models.hifigan import (
    HOP_SAMPLES,
    OUTPUT_SAMPLE_RATE,
    REACH_FRAMES,
    HiFiGAN,
    frames_of,
    to_output_rate,
)
from myxtts.models.mel_decoder import MelDecoder, SpokenText
from myxtts.synthesis.hallucinations import Spoken

Wave = NDArray[np.float32]

CODE_SECONDS = FRAMES_PER_CODE * HOP / SAMPLE_RATE
"""What one code stands for at normal speed: 46 ms."""


class Decoder(Protocol):
    """What was generated for the tokens of one piece to its wave."""

    sample_rate: int
    name: str

    def decode(self, spoken: Spoken, tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave: ...


class HiFiGANDecoder:
    """The trained decoder: the GPT's latents and the speaker vector."""

    sample_rate = OUTPUT_SAMPLE_RATE
    name = "HiFi-GAN"

    def __init__(self, hifigan: HiFiGAN) -> None:
        # Any length from the start: tracing takes seconds.
        shapes = [tf.TensorSpec([1, None, hifigan.latent_width]), tf.TensorSpec([1, hifigan.speaker_width])]
        self._run = tf.function(hifigan.from_frames, input_signature=shapes, autograph=False)

    def decode(self, spoken: Spoken, tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        return self.begin(speaker_V).add(stretched(spoken.latents_ND, speed), last=True)

    def begin(self, speaker_V: Any) -> GrowingWave:
        """A wave whose latents are still being made."""
        return GrowingWave(self._run, speaker_V)


class GrowingWave:
    """Decodes latents as they come, with as much around each part as reaches into it: the parts make up the whole."""

    def __init__(self, run: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], speaker_V: Any) -> None:
        self._run = run
        self._speaker_1V = tf.constant(np.asarray(speaker_V, np.float32)[None])
        self._latents: list[NDArray[np.float32]] = []
        self._decoded_frames = 0

    def add(self, latents_ND: NDArray[np.float32], *, last: bool) -> Wave:
        """The samples that no later latent can change; with the last latents, all that are left."""
        self._latents.append(latents_ND)
        known_ND = np.concatenate(self._latents)
        frames_TD = to_output_rate(tf.constant(known_ND[None]))[0]
        # Between the last two latents, and behind them, frames wait for the next latent.
        known = len(frames_TD) if last else frames_of(max(0, len(known_ND) - 1))
        end = known if last else known - REACH_FRAMES
        if end <= self._decoded_frames:
            return np.zeros(0, np.float32)
        begin = max(0, self._decoded_frames - REACH_FRAMES)
        wave_S = self._run(frames_TD[None, begin:known], self._speaker_1V)[0].numpy()
        part = wave_S[(self._decoded_frames - begin) * HOP_SAMPLES : (end - begin) * HOP_SAMPLES]
        self._decoded_frames = end
        return np.asarray(part, np.float32)


class CodecDecoder:
    """Codes to mel by the DVAE, and phases by Griffin-Lim: no part beside the codec has to be trained."""

    sample_rate = SAMPLE_RATE
    name = "DVAE and Griffin-Lim"

    def __init__(self, dvae: DVAE, gains: Sequence[float] | None = None) -> None:
        self._dvae = dvae
        self.set_postfilter(gains)
        self._mel = MelSpectrogram()
        self._griffin_lim = GriffinLim()
        self._decode = tf.function(lambda codes: dvae.decode(codes), reduce_retracing=True, autograph=False)
        self._encode = tf.function(self._codes_of, reduce_retracing=True, autograph=False)

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """The detail that the DVAE smooths away, from now on; its weights may have changed."""
        self._postfilter = Postfilter.of(self._dvae, gains)

    def decode(self, spoken: Spoken, tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        return self.wave_of(stretched(self._mel_of(spoken.codes_N), speed))

    def _mel_of(self, codes_N: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._postfilter.apply(self._decode(tf.constant(codes_N[None]))[0].numpy())

    def wave_of(self, mel_TM: NDArray[np.float32]) -> Wave:
        return np.asarray(self._griffin_lim(mel_TM[None])[0].numpy(), np.float32)

    def round_trip(self, wave_S: Wave) -> Wave:
        """The clip through codes and back: the best that any text can sound with this codec."""
        codes_N = self._encode(tf.constant(wave_S[None]), tf.constant([len(wave_S)]))[0].numpy()
        return self.wave_of(self._mel_of(codes_N))[: len(wave_S)]

    def griffin_lim_only(self, wave_S: Wave) -> Wave:
        """The clip through its mel and back, without codes: what Griffin-Lim alone costs."""
        mel_1TM, _ = self._mel(tf.constant(wave_S[None]), tf.constant([len(wave_S)]))
        return self.wave_of(mel_1TM[0].numpy())

    def _codes_of(self, wave_BS: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
        return self._dvae.encode(*self._mel.log_mel(wave_BS, lengths_B))[0]


class TrainedMelDecoder:
    """The trained mel decoder, which reads latents and text beside the codes, and Griffin-Lim."""

    sample_rate = SAMPLE_RATE
    name = "mel decoder and Griffin-Lim"

    def __init__(self, mel_decoder: MelDecoder, dvae: DVAE, gains: Sequence[float] | None = None) -> None:
        self._griffin_lim = GriffinLim()
        self._mel_decoder = mel_decoder
        self.set_postfilter(gains)
        ids_1N = tf.TensorSpec([1, None], tf.int32)
        shapes = [ids_1N, tf.TensorSpec([1, None, mel_decoder.latent_width]), ids_1N, ids_1N]

        def run(codes_1N: tf.Tensor, latents_1ND: tf.Tensor, *text: tf.Tensor) -> tf.Tensor:
            placed = SpokenText(text[0], tf.shape(text[0])[1:], text[1]) if text else None
            return mel_decoder(dvae.codebook.look_up(codes_1N), latents_1ND, tf.shape(codes_1N)[1:], placed)

        self._with_text = tf.function(run, input_signature=shapes, autograph=False)
        self._without = tf.function(run, input_signature=shapes[:2], autograph=False)

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """The detail that the mel decoder smooths away, from now on; its weights may have changed."""
        self._postfilter = Postfilter.of(self._mel_decoder, gains)

    def decode(self, spoken: Spoken, tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        made = [tf.constant(spoken.codes_N[None]), tf.constant(spoken.latents_ND[None])]
        if len(spoken.spoken_token_N):
            text = [tf.constant([tokens], tf.int32), tf.constant(spoken.spoken_token_N[None], tf.int32)]
            mel_1TM = self._with_text(*made, *text)
        else:
            mel_1TM = self._without(*made)
        mel_TM = stretched(self._postfilter.apply(mel_1TM[0].numpy()), speed)
        return np.asarray(self._griffin_lim(mel_TM[None])[0].numpy(), np.float32)


def stretched(rows_TC: NDArray[np.float32], speed: float) -> NDArray[np.float32]:
    """The rows in time divided by `speed`, linear between neighbours: faster or slower speech at the same pitch."""
    count = len(rows_TC)
    if speed == 1.0 or count == 0:
        return rows_TC
    made = max(1, round(count / speed))
    where = np.clip((np.arange(made) + 0.5) * count / made - 0.5, 0, count - 1)
    low = np.floor(where).astype(np.int64)
    share = (where - low)[:, None].astype(np.float32)
    return np.asarray(rows_TC[low] * (1 - share) + rows_TC[np.minimum(low + 1, count - 1)] * share, np.float32)
