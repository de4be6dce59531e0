"""From generated codes and latents to waves with an exported voice's networks; see `myxtts.synthesis.decoding`.

Shapes: N codes, D width of a latent, C width of a code vector, T mel frames, M mel channels, V speaker vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.audio.postfilter import Postfilter
from myxtts.config.model import ModelConfig
from myxtts.config.parts import CODEC, HIFIGAN, MEL
from myxtts.errors import SynthesisError
from myxtts.models.hifigan_sizes import OUTPUT_SAMPLE_RATE
from myxtts.synthesis.hifigan_stream import StreamingHiFiGAN
from myxtts.synthesis.joining import stretched
from myxtts.synthesis.litert import layout
from myxtts.synthesis.litert.network import Array, Network
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.mel_to_wave import mel_to_wave, vocoder_name
from myxtts.synthesis.speech_model import CheckedCodes, SpokenMel, Wave, WaveDecoder

Floats = NDArray[np.float32]

HIFIGAN_FRAMES = 96
"""LiteRT takes 0.9 MB for each frame of HiFi-GAN: at once, a sentence of 28 seconds would take 2.4 GB."""


class LiteRTMelDecoder:
    """Codes to mel by the DVAE's decoder or the mel decoder, and a vocoder without weights."""

    sample_rate = SAMPLE_RATE

    def __init__(
        self,
        network: Network,
        codebook_KC: Floats,
        postfilter: Postfilter,
        *,
        reads_latents: bool,
        voiced: bool,
        with_pitch: bool,
    ) -> None:
        """`reads_latents` for a mel decoder, which reads text too where the codes come with their tokens; `voiced` for
        one that is told the voice vector; `with_pitch` for one that predicts the pitch."""
        self._network, self._codebook_KC, self._postfilter = network, codebook_KC, postfilter
        self._reads_latents, self._voiced = reads_latents, voiced
        self.name = f"{'mel decoder' if reads_latents else 'DVAE'} and {vocoder_name(with_pitch=with_pitch)}"

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None, speed: float) -> Wave:
        return mel_to_wave(self.spoken_mel(made, text_tokens, speaker_V), speed)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None) -> SpokenMel:
        inputs: list[Array] = [voice_vector(speaker_V)] if self._voiced else []
        inputs.append(self._codebook_KC[made.codes_N][None])
        if self._reads_latents:
            inputs.append(np.ascontiguousarray(made.latents_ND[None], np.float32))
            if len(made.spoken_token_N):
                inputs += [np.asarray([text_tokens], np.int32), np.asarray(made.spoken_token_N[None], np.int32)]
        mel_1TM, *pitch_1T = self._network(*inputs)
        return SpokenMel(self._postfilter.apply(mel_1TM[0]), pitch_1T[0][0] if pitch_1T else None)

    def streaming(self, speaker_V: Floats | None) -> None:
        return None


def voice_vector(speaker_V: Floats | None) -> Floats:
    """The voice vector as decoders take it, [1, V]."""
    if speaker_V is None:
        raise SynthesisError(
            "this voice needs a voice vector, and the saved latents have none",
            hint="make them again from the reference clip with --save-voice",
        )
    return np.asarray(speaker_V, np.float32)[None]


class LiteRTHiFiGAN:
    """The trained vocoder of the GPT's latents and the speaker vector."""

    sample_rate = OUTPUT_SAMPLE_RATE
    name = "HiFi-GAN"

    def __init__(self, network: Network) -> None:
        self._network = network

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None, speed: float) -> Wave:
        return self.streaming(speaker_V).add(stretched(made.latents_ND, speed), last=True)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None) -> None:
        return None

    def streaming(self, speaker_V: Floats | None) -> StreamingHiFiGAN:
        """A decoder for latents that are still being generated."""
        return StreamingHiFiGAN(self._run, speaker_V, most_frames=HIFIGAN_FRAMES)

    def _run(self, frames_1TD: Floats, speaker_1V: Floats) -> Floats:
        [wave_1S] = self._network(frames_1TD, speaker_1V)
        return np.asarray(wave_1S[0], np.float32)


class Opened(NamedTuple):
    """An exported voice's settings, files and tables."""

    config: ModelConfig
    manifest: VoiceManifest
    networks: Mapping[str, Network]
    tables: Mapping[str, Floats]

    def postfilter(self, part: str) -> Postfilter:
        tables = self.tables
        gains_M = self.manifest.postfilter.get(part, np.ones(len(tables["mel_shift"])))
        return Postfilter(gains_M, tables["mel_shift"], tables["mel_scale"])


def make_decoder(voice: Opened) -> WaveDecoder:
    """The decoder that the voice speaks with."""
    return layout.of_decoder(_DECODERS, voice.manifest.parts)(voice)


def _mel(voice: Opened) -> WaveDecoder:
    return LiteRTMelDecoder(
        voice.networks[layout.MEL_DECODER],
        voice.tables["codebook"],
        voice.postfilter("mel_decoder"),
        reads_latents=True,
        voiced=voice.config.voice_width > 0,
        with_pitch=voice.config.pitch_predictor,
    )


def _codec(voice: Opened) -> WaveDecoder:
    return LiteRTMelDecoder(
        voice.networks[layout.DVAE],
        voice.tables["codebook"],
        voice.postfilter("dvae"),
        reads_latents=False,
        voiced=voice.config.voice_width > 0,
        with_pitch=False,
    )


def _hifigan(voice: Opened) -> WaveDecoder:
    return LiteRTHiFiGAN(voice.networks[layout.HIFIGAN])


_DECODERS = {MEL.name: _mel, HIFIGAN.name: _hifigan, CODEC.name: _codec}
