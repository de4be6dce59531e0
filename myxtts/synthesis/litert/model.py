"""The networks of an exported voice, behind the interface of `myxtts.synthesis.speech_model`. No TensorFlow.

Sizes in names: B texts, L latents, U text tokens, N codes, D width, V speaker vector, T mel frames, M mel channels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import resampled
from myxtts.audio.mel import CONDITIONING_MEL, DVAE_MEL, SAMPLE_RATE, SPEAKER_MEL, SPEAKER_PREEMPHASIS
from myxtts.audio.numpy_mel import log_mel, power_mel
from myxtts.errors import CheckpointError, ConfigError
from myxtts.synthesis.decode_batch import DecodeBatch, RowStep, as_generated
from myxtts.synthesis.litert import layout
from myxtts.synthesis.litert.decoding import Opened, make_decoder
from myxtts.synthesis.litert.folder import check_files, read_manifest, read_tables
from myxtts.synthesis.litert.gpt import LiteRTGPT
from myxtts.synthesis.litert.network import Network
from myxtts.synthesis.references import VoiceLatents
from myxtts.synthesis.speech_model import CheckedCodes, Generated, SpokenMel, StreamingDecoder, TextBatch, Wave
from myxtts.synthesis.voice import Voice

Floats = NDArray[np.float32]

WIDE = 512
"""Width of a GPT from which several threads are worth what waiting for each other costs."""
MOST_THREADS = 4


class LiteRTModel:
    """One voice on the CPU."""

    codec = None

    def __init__(self, voice: Voice, networks: dict[str, Network], tables: dict[str, Floats]) -> None:
        config, manifest = voice.config.model, voice.manifest
        segments = [networks[layout.gpt_segment(number)] for number in range(config.gpt_layers + 1)]
        self.gpt = LiteRTGPT(config, segments, tables, manifest.alignment_heads)
        self._conditioning = networks[layout.CONDITIONING]
        self._speaker_encoder = networks.get(layout.SPEAKER_ENCODER)
        self._voice_encoder = networks.get(layout.VOICE_ENCODER)
        self._mel_norms_M = tables.get("conditioning_scale")
        self._decoder = make_decoder(Opened(config, manifest, networks, tables))

    @classmethod
    def load(cls, folder: Path, voice: Voice, *, threads: int | None = None, checked: bool = False) -> LiteRTModel:
        """Check all files of an exported folder, unless the caller has, and open them.

        Raises `CheckpointError` for what does not fit.
        """
        config, manifest = voice.config.model, voice.manifest
        exported = read_manifest(folder)
        wanted = layout.networks(config, manifest)
        if missing := wanted.keys() - exported.files.keys():
            raise CheckpointError(f"{folder} has no {min(missing)}", hint="export the voice again")
        if not checked:
            check_files(folder, exported)
        if threads is None:
            threads = 1 if config.gpt_width <= WIDE else min(MOST_THREADS, os.cpu_count() or 1)
        tables = read_tables(folder, layout.tables(config, manifest.parts))
        networks = {name: Network(folder / name, sizes, threads=threads) for name, sizes in wanted.items()}
        return cls(voice, networks, tables)

    @property
    def sample_rate(self) -> int:
        return self._decoder.sample_rate

    @property
    def decoder_name(self) -> str:
        return self._decoder.name

    @property
    def max_codes(self) -> int:
        return self.gpt.config.max_audio_tokens

    def new_batch(self) -> DecodeBatch:
        """An empty batch for texts that join and leave at any step."""
        return DecodeBatch(self.gpt)

    def encode_reference(self, clips: Sequence[Wave], windows: Sequence[Wave]) -> VoiceLatents:
        """The mean of the latents over windows as long as training's, as XTTS v2 does it."""
        mels = [log_mel(window, CONDITIONING_MEL, self._mel_norms_M) for window in windows]
        latents_BLD = np.concatenate([self._conditioning(mel_TM[None])[0] for mel_TM in mels])
        speaker_V = None
        if self._speaker_encoder is not None:
            waves = [resampled(clip, SAMPLE_RATE, SPEAKER_MEL.sample_rate) for clip in clips]
            vectors = [self._speaker_encoder(_speaker_mel(wave)[None])[0][0] for wave in waves]
            speaker_V = np.asarray(np.mean(vectors, axis=0), np.float32)
        elif self._voice_encoder is not None:
            vectors = [self._voice_encoder(log_mel(window, DVAE_MEL)[None])[0][0] for window in windows]
            mean_V = np.mean(vectors, axis=0)
            speaker_V = np.asarray(mean_V / max(float(np.linalg.norm(mean_V)), 1e-9), np.float32)
        return VoiceLatents(np.ascontiguousarray(latents_BLD.mean(0), np.float32), speaker_V)

    def generate(self, texts: TextBatch) -> Generated:
        """See `CodeGenerator.generate`."""
        nothing = self._generated([[]] * len(texts), [False] * len(texts))
        return next(self.stream(texts, chunk=self.max_codes + 1), nothing)

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        """See `CodeGenerator.stream`."""
        if chunk < 1:
            raise ConfigError(f"a chunk of {chunk} codes was asked for", hint="20 codes are about one second")
        batch, places = self.new_batch(), {}
        for place, text in enumerate(texts.rows()):
            if text.max_codes is None or text.max_codes > 0:
                places[batch.join(text)] = place
        stopped_B = [False] * len(texts)
        while batch.rows:
            made: list[list[RowStep]] = [[] for _ in stopped_B]
            for _ in range(chunk):
                if not batch.rows:
                    break
                for step in batch.step():
                    made[places[step.row]].append(step)
                    stopped_B[places[step.row]] = step.stopped
            yield self._generated(made, stopped_B)

    def _generated(self, made: Sequence[Sequence[RowStep]], stopped_B: Sequence[bool]) -> Generated:
        return as_generated(made, stopped_B, aligned=bool(self.gpt.heads), width=self.gpt.config.gpt_width)

    def decode(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None, speed: float) -> Wave:
        return self._decoder.decode(made, text_tokens, speaker_V, speed)

    def spoken_mel(self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: Floats | None) -> SpokenMel | None:
        return self._decoder.spoken_mel(made, text_tokens, speaker_V)

    def streaming_decoder(self, speaker_V: Floats | None) -> StreamingDecoder | None:
        return self._decoder.streaming(speaker_V)


def _speaker_mel(wave_S: Wave) -> Floats:
    """What the speaker encoder reads of a wave at its own rate."""
    before_S = np.concatenate([wave_S[1:2], wave_S[:-1]])
    emphasised_S = np.asarray(wave_S - np.float32(SPEAKER_PREEMPHASIS) * before_S, np.float32)
    return np.asarray(np.log(power_mel(emphasised_S, SPEAKER_MEL) + np.float32(1e-6)), np.float32)
