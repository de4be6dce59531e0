"""The parts of a voice, and the decoders that it may speak with: the one table that settings, models, training and
speaking ask.

A decoder turns what the GPT generates into a wave. Its networks are in `myxtts.models.parts`, how it speaks in
`myxtts.synthesis.decoding` and `myxtts.synthesis.litert`, and a stage of its own trains it. What is not in the table is
refused by name: nothing speaks in the place of something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from myxtts.errors import CheckpointError, SynthesisError

CORE_PARTS = ("dvae", "conditioning", "gpt")
"""Of every model, in the order in which they are built and a voice has them."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """One way from the GPT's codes and latents to a wave."""

    name: str
    """As the setting `decoder` names it."""
    parts: tuple[str, ...] = ()
    """The networks that its stage trains; the one that makes speech is last."""
    reads: tuple[str, ...] = ()
    """Core parts that it speaks with beside its own."""
    mel_part: str | None = None
    """The part whose mels a vocoder without weights speaks; None where it makes a wave without them."""


MEL = Decoder(name="mel", parts=("mel_decoder",), reads=("dvae",), mel_part="mel_decoder")
HIFIGAN = Decoder(name="hifigan", parts=("speaker_encoder", "hifigan"))
CODEC = Decoder(name="codec", reads=("dvae",), mel_part="dvae")
"""What a voice without a trained decoder speaks with: the DVAE's own."""

DECODERS = {decoder.name: decoder for decoder in (MEL, HIFIGAN)}
"""The decoders that can be trained. Of several that a voice has all parts of, the last speaks."""


def voice_parts() -> tuple[str, ...]:
    """Every part that a voice may have, in the order in which it has them."""
    return (*CORE_PARTS, *dict.fromkeys(part for decoder in DECODERS.values() for part in decoder.parts))


def refuse_unknown_parts(parts: Iterable[str]) -> None:
    """Raise `CheckpointError` for a part that no decoder of the table has: this version cannot know what it is for."""
    known = voice_parts()
    if unknown := [part for part in parts if part not in known]:
        raise CheckpointError(
            f"the voice has a part {unknown[0]!r} that this version does not know", hint="update myxtts"
        )


def decoder_of(parts: Iterable[str]) -> Decoder:
    """What a voice with these parts speaks with.

    Raises `CheckpointError` for a part that is not known, `SynthesisError` where nothing here makes a wave.
    """
    own = set(parts)
    refuse_unknown_parts(sorted(own))
    for decoder in (*reversed(DECODERS.values()), CODEC):
        if {*decoder.parts, *decoder.reads} <= own:
            return decoder
    ways = ", or ".join(" and ".join((*decoder.parts, *decoder.reads)) for decoder in (*DECODERS.values(), CODEC))
    raise SynthesisError("the voice has neither a decoder nor a codec", hint=f"a voice needs {ways}")
