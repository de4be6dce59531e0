"""How a text is to be spoken, as one object from the command line's flags to the sampler. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from myxtts.config.checks import check_seed, in_range
from myxtts.config.speaking import MOST_CANDIDATES, Sampling, check_speed
from myxtts.errors import SynthesisError
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.references import Reference, as_list
from myxtts.text.languages import find_language


@dataclass(frozen=True, kw_only=True)
class SpeakingOptions:
    """Checked when it is made: raises `ConfigError` or `SynthesisError` before a voice is opened."""

    reference: Reference | Sequence[Reference] | None = None
    """Clips of the speaker to clone, or saved latents."""

    speaker: str | None = None
    """One of the voice's own speakers by name; without one and without a reference, the first of the language."""

    language: str | None = None
    """Of the text; None goes by its letters and the speaker."""

    seed: int = 0
    """The same seed gives the same speech."""

    speed: float = 1.0
    """1.2 is a fifth faster, at the same pitch."""

    sampling: Sampling | None = None
    """How codes are sampled; None takes the voice's own way."""

    sampling_changes: Mapping[str, float] = field(default_factory=dict)
    """Settings of `Sampling` by name that replace those of `sampling`, or of the voice's own way."""

    candidates: int | None = None
    """Times that a text is generated, of which the one that fits it best is spoken; None takes the voice's own way."""

    checks: HallucinationChecks | None = HallucinationChecks()  # noqa: RUF009 - frozen, so shared safely
    """None speaks without hallucination checks, up to the model's own length limit."""

    def __post_init__(self) -> None:
        check_speed(self.speed)
        check_seed(self.seed)
        if self.candidates is not None:
            in_range("--candidates", self.candidates, 1, MOST_CANDIDATES, hint="1 takes the first as it comes")
        if self.language is not None:
            find_language(self.language)
        Sampling(**self.sampling_changes)  # type: ignore[arg-type]  # raises for a value that cannot be
        if self.speaker is not None and as_list(self.reference):
            raise SynthesisError(f"both a reference and speaker {self.speaker!r} were given", hint="give one of them")

    def sampling_over(self, usual: Sampling) -> Sampling:
        """How codes are sampled from a voice whose own way is `usual`."""
        return replace(self.sampling or usual, **self.sampling_changes)  # type: ignore[arg-type]


class SpeakingKeywords(TypedDict, total=False):
    """The fields of `SpeakingOptions` as keyword arguments, for type checkers."""

    reference: Reference | Sequence[Reference] | None
    speaker: str | None
    language: str | None
    seed: int
    speed: float
    sampling: Sampling | None
    sampling_changes: Mapping[str, float]
    candidates: int | None
    checks: HallucinationChecks | None
