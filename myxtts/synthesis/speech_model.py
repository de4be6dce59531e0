"""What a runtime computes for the synthesizer: a small interface, and the arrays that cross it. No TensorFlow.

`myxtts.synthesis.tensorflow_model` stands behind it; another runtime needs these methods and nothing else. Sizes in
names: B batch, L latents, U text tokens, N codes, D width, V speaker vector, S samples, T mel frames, M mel channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import HOP, SAMPLE_RATE
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.config.speaking import Sampling
from myxtts.synthesis.numpy_sampling import per_row
from myxtts.synthesis.references import VoiceLatents

Wave = NDArray[np.float32]

CODE_SECONDS = FRAMES_PER_CODE * HOP / SAMPLE_RATE
"""Duration of one code at normal speed: 46 ms."""


class Text(NamedTuple):
    """One text to generate codes for, and how."""

    latents_LD: NDArray[np.float32]
    ids: Sequence[int]
    sampling: Sampling = Sampling()
    seed: int = 0
    max_codes: int | None = None
    """None for as many as the model has positions for."""


@dataclass(frozen=True)
class TextBatch:
    """Texts to generate codes for, and how; latents, seeds and limits are one for all texts, or one for each."""

    latents_BLD: Any
    text_BU: Any
    lengths_B: Any
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen, so shared safely
    seeds: int | Sequence[int] = 0
    max_codes: int | Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.text_BU)

    def row_seeds(self) -> list[int]:
        """One for each text; raises `ConfigError` where there are more or fewer."""
        return [int(seed) for seed in per_row("seeds", self.seeds, len(self))]

    def row_latents(self) -> NDArray[np.float32]:
        latents_BLD = np.asarray(self.latents_BLD, np.float32)
        return np.broadcast_to(latents_BLD, (len(self), *latents_BLD.shape[1:]))

    def repeated(self, rows: Sequence[int], seeds: Sequence[int]) -> TextBatch:
        """The texts of these rows, some perhaps several times, each with a seed of its own and no limit."""
        lengths_B = np.asarray(self.lengths_B, np.int32)
        text_BU = np.asarray(self.text_BU, np.int32)
        return TextBatch(
            self.row_latents()[list(rows)], text_BU[list(rows)], lengths_B[list(rows)], self.sampling, seeds
        )

    def rows(self) -> list[Text]:
        """Each text by itself; raises `ConfigError` where there are more or fewer seeds or limits than texts."""
        count, latents_BLD, seeds = len(self), self.row_latents(), self.row_seeds()
        limits = [None] * count if self.max_codes is None else per_row("max_codes", self.max_codes, count).tolist()
        ids = [
            text_U[:length].tolist() for text_U, length in zip(np.asarray(self.text_BU), self.lengths_B, strict=True)
        ]
        return [Text(latents_BLD[row], ids[row], self.sampling, seeds[row], limits[row]) for row in range(count)]


class Generated(NamedTuple):
    """Codes of a batch, padded to the longest row; what lies beyond a row's length means nothing."""

    codes_BN: np.ndarray
    lengths_B: np.ndarray
    """Codes before the stop token."""
    stopped_B: np.ndarray
    """False where the length limit ended the row."""
    latents_BND: np.ndarray
    spoken_token_BN: np.ndarray
    """Index of the text token that the alignment heads attend to for each code; empty without such heads."""


@dataclass(frozen=True)
class CheckedCodes:
    """One text's codes after the hallucination checks, and what those did."""

    codes_N: np.ndarray
    latents_ND: np.ndarray
    spoken_token_N: np.ndarray
    """Text token of each code; empty without alignment heads."""
    fault: str | None
    """What is still wrong with it; None where nothing is."""
    attempts: int
    cut_codes: int
    """Codes that were cut off the end."""
    note: str | None
    """What the checks did, in words; None where they did nothing."""


class CodeGenerator(Protocol):
    """Text tokens and voice latents to codes."""

    @property
    def max_codes(self) -> int:
        """Most codes that one text can have."""

    def generate(self, texts: TextBatch) -> Generated:
        """Codes until every row has stopped or is at its limit; a row depends on its own text and seed alone."""

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        """The same codes, `chunk` at a time as they are made; lengths are those of the chunk."""


class StreamingDecoder(Protocol):
    """Decodes latents as they come; the parts, one behind the other, are the whole wave."""

    def add(self, latents_ND: NDArray[np.float32], *, last: bool) -> Wave:
        """The samples that no later latent can change; with the last latents, all that are left."""


class Codec(Protocol):
    """Clips at 22,050 samples a second through the codec, for comparison with what the voice speaks."""

    def round_trip(self, wave_S: Wave) -> Wave:
        """The clip through codes and back: the best that any text can sound with this codec."""

    def griffin_lim_only(self, wave_S: Wave) -> Wave:
        """The clip through its mel and back, without codes: what Griffin-Lim alone costs."""


class SpokenMel(NamedTuple):
    """What a vocoder speaks."""

    mel_TM: NDArray[np.float32]
    """Log mel."""
    pitch_T: NDArray[np.float32] | None = None
    """In Hz, 0 where unvoiced; None where the decoder predicts none."""


class WaveDecoder(Protocol):
    """What was generated for one text to its wave; one for each `myxtts.config.parts.Decoder` and runtime."""

    sample_rate: int
    name: str
    """For reports."""

    def decode(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None, speed: float
    ) -> Wave:
        """See `SpeechModel.decode`."""

    def spoken_mel(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None
    ) -> SpokenMel | None:
        """See `SpeechModel.spoken_mel`."""

    def streaming(self, speaker_V: NDArray[np.float32] | None) -> StreamingDecoder | None:
        """See `SpeechModel.streaming_decoder`."""


class SpeechModel(CodeGenerator, Protocol):
    """The networks of one voice."""

    @property
    def sample_rate(self) -> int: ...

    @property
    def decoder_name(self) -> str:
        """Of what makes waves, for reports."""

    @property
    def codec(self) -> Codec | None: ...

    def encode_reference(self, clips: Sequence[Wave], windows: Sequence[Wave]) -> VoiceLatents:
        """Conditioning latents as their mean over `windows`, the speaker vector as its mean over whole `clips`."""

    def decode(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None, speed: float
    ) -> Wave:
        """The wave of one text's codes."""

    def spoken_mel(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None
    ) -> SpokenMel | None:
        """What `decode` would give to a vocoder; None where it makes a wave without a mel."""

    def streaming_decoder(self, speaker_V: NDArray[np.float32] | None) -> StreamingDecoder | None:
        """None where a wave can only be made whole, as with mels."""
