"""From generated codes and latents to waves, with TensorFlow: a class for each decoder of `myxtts.config.parts`.

To add one: its class, and its line in `MAKERS`. One piece at a time: a piece has the same samples whatever was
spoken beside it. Shapes: N codes, D width of a latent, T mel frames, M mel channels, V speaker vector, S samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.audio.griffin_lim import griffin_lim
from myxtts.audio.mel import SAMPLE_RATE, MelSpectrogram
from myxtts.audio.postfilter import Postfilter
from myxtts.config.parts import CODEC, HIFIGAN, MEL, Decoder
from myxtts.errors import SynthesisError
from myxtts.models.dvae import DVAE
from myxtts.models.hifigan import HiFiGAN
from myxtts.models.hifigan_sizes import OUTPUT_SAMPLE_RATE
from myxtts.models.mel_decoder import MelDecoder, SpokenText, outputs_of
from myxtts.synthesis.hifigan_stream import StreamingHiFiGAN
from myxtts.synthesis.joining import stretched
from myxtts.synthesis.mel_to_wave import mel_to_wave, vocoder_name
from myxtts.synthesis.speech_model import CheckedCodes, SpokenMel, Wave, WaveDecoder

Gains = Mapping[str, Sequence[float]]
"""Of the postfilter, by the part that makes the mels: `VoiceManifest.postfilter`."""

HIFIGAN_FRAMES = 512
"""TensorFlow takes 1.3 MB for each frame of HiFi-GAN: at once, a sentence of 28 seconds would take 3.4 GB."""


class TensorFlowDecoder(WaveDecoder, Protocol):
    """One over a model whose weights may change, as a model's in training do."""

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """Use these gains of its mels from now on, none for None; nothing where it makes no mels."""


class HiFiGANDecoder:
    """The trained vocoder of the GPT's latents and the speaker vector."""

    sample_rate = OUTPUT_SAMPLE_RATE
    name = "HiFi-GAN"

    def __init__(self, hifigan: HiFiGAN, device: str | None = None) -> None:
        self._device = device
        # Any length from the start: tracing takes seconds.
        shapes = [tf.TensorSpec([1, None, hifigan.latent_width]), tf.TensorSpec([1, hifigan.speaker_width])]
        self._compiled = tf.function(hifigan.from_frames, input_signature=shapes, autograph=False)

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        return self.streaming(speaker_V).add(stretched(made.latents_ND, speed), last=True)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any) -> None:
        return None

    def streaming(self, speaker_V: Any) -> StreamingHiFiGAN:
        """A decoder for latents that are still being generated."""
        return StreamingHiFiGAN(self._run, speaker_V, most_frames=HIFIGAN_FRAMES)

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """Its waves are not filtered."""

    def _run(self, frames_1TD: NDArray[np.float32], speaker_1V: NDArray[np.float32]) -> NDArray[np.float32]:
        with tf.device(self._device):
            return np.asarray(self._compiled(tf.constant(frames_1TD), tf.constant(speaker_1V))[0].numpy(), np.float32)


class CodecDecoder:
    """Codes to mel by the DVAE, and phases by Griffin-Lim: needs no trained part beside the codec."""

    sample_rate = SAMPLE_RATE
    name = "DVAE and Griffin-Lim"

    def __init__(self, dvae: DVAE, gains: Sequence[float] | None = None) -> None:
        self._dvae = dvae
        self.set_postfilter(gains)
        self._mel = MelSpectrogram()
        self._decode = tf.function(
            lambda codes, voice: dvae.decode(codes, voice_BV=voice), reduce_retracing=True, autograph=False
        )
        self._encode = tf.function(self._codes_and_voice, reduce_retracing=True, autograph=False)

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """Use these gains from now on, none for None; call it again where the DVAE's weights have changed."""
        self._postfilter = Postfilter.of(self._dvae, gains)

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        return mel_to_wave(self.spoken_mel(made, text_tokens, speaker_V), speed)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any) -> SpokenMel:
        return SpokenMel(self._mel_of(made.codes_N, _voice_of(self._dvae, speaker_V)))

    def streaming(self, speaker_V: Any) -> None:
        return None

    def _mel_of(self, codes_N: NDArray[np.int32], voice_1V: Any) -> NDArray[np.float32]:
        return self._postfilter.apply(self._decode(tf.constant(codes_N[None]), voice_1V)[0].numpy())

    def round_trip(self, wave_S: Wave) -> Wave:
        """The clip through codes and back: the best that any text can sound with this codec."""
        codes_1N, voice_1V = self._encode(tf.constant(wave_S[None]), tf.constant([len(wave_S)]))
        return griffin_lim(self._mel_of(codes_1N[0].numpy(), voice_1V))[: len(wave_S)]

    def griffin_lim_only(self, wave_S: Wave) -> Wave:
        """The clip through its mel and back, without codes: what Griffin-Lim alone costs."""
        mel_1TM, _ = self._mel(tf.constant(wave_S[None]), tf.constant([len(wave_S)]))
        return griffin_lim(mel_1TM[0].numpy())

    def _codes_and_voice(self, wave_BS: tf.Tensor, lengths_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        mel = self._mel.log_mel(wave_BS, lengths_B)
        return self._dvae.encode(*mel)[0], self._dvae.voice_of(*mel)


class TrainedMelDecoder:
    """The trained mel decoder, which reads latents and text beside the codes, and a vocoder."""

    sample_rate = SAMPLE_RATE

    def __init__(self, mel_decoder: MelDecoder, dvae: DVAE, gains: Sequence[float] | None = None) -> None:
        self._mel_decoder, self._dvae = mel_decoder, dvae
        self.name = f"mel decoder and {vocoder_name(with_pitch=mel_decoder.pitch is not None)}"
        self.set_postfilter(gains)
        ids_1N = tf.TensorSpec([1, None], tf.int32)
        voice_width = 0 if dvae.voice is None else dvae.voice.width
        shapes = [
            tf.TensorSpec([1, voice_width]),
            ids_1N,
            tf.TensorSpec([1, None, mel_decoder.latent_width]),
            ids_1N,
            ids_1N,
        ]

        def run(voice_1V: Any, codes_1N: tf.Tensor, latents_1ND: tf.Tensor, *text: tf.Tensor) -> list[tf.Tensor]:
            placed = SpokenText(text[0], tf.shape(text[0])[1:], text[1]) if text else None
            vectors_1NC = dvae.codebook.look_up(codes_1N)
            return outputs_of(mel_decoder(vectors_1NC, latents_1ND, tf.shape(codes_1N)[1:], placed, voice_1V))

        self._with_text = tf.function(run, input_signature=shapes, autograph=False)
        self._without_text = tf.function(run, input_signature=shapes[:3], autograph=False)

    def set_postfilter(self, gains: Sequence[float] | None) -> None:
        """Use these gains from now on, none for None; call it again where the decoder's weights have changed."""
        self._postfilter = Postfilter.of(self._mel_decoder, gains)

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any, speed: float) -> Wave:
        return mel_to_wave(self.spoken_mel(made, text_tokens, speaker_V), speed)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Any) -> SpokenMel:
        voice_1V = _voice_of(self._dvae, speaker_V)
        inputs = [voice_1V, tf.constant(made.codes_N[None]), tf.constant(made.latents_ND[None])]
        if len(made.spoken_token_N):
            text = [tf.constant([text_tokens], tf.int32), tf.constant(made.spoken_token_N[None], tf.int32)]
            mel_1TM, *pitch_1T = self._with_text(*inputs, *text)
        else:
            mel_1TM, *pitch_1T = self._without_text(*inputs)
        mel_TM = self._postfilter.apply(mel_1TM[0].numpy())
        return SpokenMel(mel_TM, pitch_1T[0][0].numpy() if pitch_1T else None)

    def streaming(self, speaker_V: Any) -> None:
        return None


def make_decoder(decoder: Decoder, parts: Any, gains: Gains, device: str | None) -> TensorFlowDecoder:
    """The decoder over the voice's layers, which are the attributes of `parts`."""
    if decoder.name not in MAKERS:
        raise SynthesisError(f"decoder {decoder.name} cannot speak with TensorFlow here", hint="update myxtts")
    return MAKERS[decoder.name](parts, gains, device)


MAKERS: dict[str, Callable[[Any, Gains, str | None], TensorFlowDecoder]] = {
    MEL.name: lambda parts, gains, device: TrainedMelDecoder(parts.mel_decoder, parts.dvae, gains.get("mel_decoder")),
    HIFIGAN.name: lambda parts, gains, device: HiFiGANDecoder(parts.hifigan, device),
    CODEC.name: lambda parts, gains, device: CodecDecoder(parts.dvae, gains.get("dvae")),
}


def _voice_of(dvae: DVAE, speaker_V: Any) -> tf.Tensor:
    """The voice vector as the decoders take it; one of no width for a voice without."""
    if dvae.voice is None:
        return tf.zeros([1, 0])
    if speaker_V is None:
        raise SynthesisError(
            "this voice needs a voice vector, and the saved latents have none",
            hint="make them again from the reference clip with --save-voice",
        )
    return tf.constant(np.asarray(speaker_V, np.float32)[None])
