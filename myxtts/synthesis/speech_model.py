"""What a runtime computes for the synthesizer: a small interface, and the arrays that cross it. No TensorFlow.

`myxtts.synthesis.tensorflow_model` stands behind it; another runtime needs these methods and nothing else. Sizes in
names: B batch, L latents, U text tokens, N codes, D width, V speaker vector, S samples.
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
from myxtts.synthesis.references import VoiceLatents

Wave = NDArray[np.float32]

CODE_SECONDS = FRAMES_PER_CODE * HOP / SAMPLE_RATE
"""Duration of one code at normal speed: 46 ms."""


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

    def generate(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Generated:
        """Codes until every row has stopped or is at its limit; a row depends on its own text and seed alone."""

    def stream(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        chunk: int,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Iterator[Generated]:
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

    def streaming_decoder(self, speaker_V: NDArray[np.float32] | None) -> StreamingDecoder | None:
        """None where a wave can only be made whole, as with mels."""
