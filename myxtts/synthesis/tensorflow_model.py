"""The networks of a voice in TensorFlow, behind the interface of `myxtts.synthesis.speech_model`.

Of a voice folder, or of a model that is still in training. Compiled functions are kept, weights are read anew at every
call. Sizes in names: B windows, S samples, T mel frames, M mel channels, L latents, D width, V speaker vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.audio.io import from_int16, padded_rows, resampled
from myxtts.audio.mel import SAMPLE_RATE, MelSpectrogram
from myxtts.config.parts import CODEC, decoder_of
from myxtts.models.reference_mel import reference_mel
from myxtts.models.speaker_encoder import SAMPLE_RATE as SPEAKER_SAMPLE_RATE
from myxtts.synthesis.decoding import CodecDecoder, Gains, TensorFlowDecoder, make_decoder
from myxtts.synthesis.generation import Generator
from myxtts.synthesis.references import VoiceLatents
from myxtts.synthesis.speech_model import CheckedCodes, Generated, SpokenMel, StreamingDecoder, TextBatch, Wave
from myxtts.synthesis.voice import Voice, build_voice, find_voice, read_voice_config, voice_manifest


class TensorFlowModel:
    """One voice on one device."""

    def __init__(self, voice: Voice, parts: Any, *, device: str | None = None) -> None:
        """`parts` has the layers of the voice's parts as attributes, filled with its weights."""
        self.parts = parts
        self._names, self._device = voice.manifest.parts, device
        gains = voice.manifest.postfilter
        with tf.device(device):
            self.generator = Generator(parts.gpt, alignment_heads=voice.manifest.alignment_heads)
            dvae = parts.dvae if "dvae" in self._names else None
            self._mel = reference_mel(voice.config.model, dvae)
            self.codec = None if dvae is None else CodecDecoder(dvae, gains.get("dvae"))
            kind = decoder_of(self._names)
            self._mel_part = kind.mel_part
            self._decoder: TensorFlowDecoder
            if kind is CODEC and self.codec is not None:
                self._decoder = self.codec
            else:
                self._decoder = make_decoder(kind, parts, gains, device)

    @classmethod
    def load(cls, folder: Path, voice: Voice, *, device: str | None = None) -> TensorFlowModel:
        """Build the parts of a voice folder and fill them with its weights."""
        with tf.device(device):
            parts = build_voice(folder, voice.config.model)
        return cls(voice, parts, device=device)

    @property
    def sample_rate(self) -> int:
        return self._decoder.sample_rate

    @property
    def decoder_name(self) -> str:
        return self._decoder.name

    @property
    def max_codes(self) -> int:
        return self.generator.max_codes

    def set_postfilter(self, gains: Gains) -> None:
        """Use the gains of `VoiceManifest.postfilter` from now on, for a voice whose weights have changed."""
        if self.codec is not None:
            self.codec.set_postfilter(gains.get("dvae"))
        if self._mel_part is not None:
            self._decoder.set_postfilter(gains.get(self._mel_part))

    def encode_reference(self, clips: Sequence[Wave], windows: Sequence[Wave]) -> VoiceLatents:
        """The mean of the latents over windows as long as training's, as XTTS v2 does it."""
        wave_BS, lengths_B = padded_rows([from_int16(window) for window in windows])
        speaker_V = None
        with tf.device(self._device):
            mel_BTM, mel_lengths_B = self._mel(wave_BS, lengths_B)
            latents_BLD = self.parts.conditioning(mel_BTM, mel_lengths_B).numpy()
            if "dvae" in self._names and self.parts.dvae.voice is not None:
                speaker_V = self._voice_vector(wave_BS, lengths_B)
            if "speaker_encoder" in self._names:
                waves = [resampled(clip, SAMPLE_RATE, SPEAKER_SAMPLE_RATE) for clip in clips]
                vectors = [self.parts.speaker_encoder(tf.constant(wave[None]))[0].numpy() for wave in waves]
                speaker_V = np.asarray(np.mean(vectors, axis=0), np.float32)
        return VoiceLatents(np.ascontiguousarray(latents_BLD.mean(0), np.float32), speaker_V)

    def _voice_vector(self, wave_BS: Wave, lengths_B: NDArray[np.int32]) -> NDArray[np.float32]:
        """The direction of the mean over the windows."""
        vectors_BV = self.parts.dvae.voice_of(*MelSpectrogram()(wave_BS, lengths_B)).numpy()
        mean_V = vectors_BV.mean(0)
        return np.asarray(mean_V / max(float(np.linalg.norm(mean_V)), 1e-9), np.float32)

    def generate(self, texts: TextBatch) -> Generated:
        with tf.device(self._device):
            return self.generator.generate(texts)

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        parts = self.generator.stream(texts, chunk=chunk)
        while True:
            # Not around the whole loop: a device's scope may not stay open while the caller works.
            with tf.device(self._device):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def decode(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None, speed: float
    ) -> Wave:
        with tf.device(self._device):
            return self._decoder.decode(made, text_tokens, speaker_V, speed)

    def spoken_mel(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None
    ) -> SpokenMel | None:
        with tf.device(self._device):
            return self._decoder.spoken_mel(made, text_tokens, speaker_V)

    def streaming_decoder(self, speaker_V: NDArray[np.float32] | None) -> StreamingDecoder | None:
        return self._decoder.streaming(speaker_V)


def load_codec(path: str | Path) -> CodecDecoder:
    """The codec alone of a run or a voice folder, whose GPT need not be trained yet."""
    folder = find_voice(path)
    manifest = voice_manifest(folder)
    parts = build_voice(folder, read_voice_config(folder).model)
    return CodecDecoder(parts.dvae, manifest.postfilter.get("dvae"))
