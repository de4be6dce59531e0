"""Text to speech with one voice: split, normalise, generate with hallucination checks, decode, trim, join.

`Synthesizer.stream` yields sound while it is made, `speak` all of it as one wave: the same samples, unless a fault is
found after a part was yielded. Every text ends in speech or in a `SynthesisError`; what was not spoken stands in the
report. Networks run behind `SpeechModel`; nothing here imports TensorFlow.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from myxtts.audio.io import from_int16
from myxtts.audio.loudness import normalise_loudness
from myxtts.config.speaking import CANDIDATES, Sampling
from myxtts.errors import SynthesisError
from myxtts.synthesis import references
from myxtts.synthesis.hallucinations import HallucinationChecks, stream_checked
from myxtts.synthesis.joining import GrowingTrim, faded, pause, trim_silence
from myxtts.synthesis.mel_to_wave import mel_to_wave
from myxtts.synthesis.options import SpeakingKeywords, SpeakingOptions
from myxtts.synthesis.references import Reference, VoiceLatents
from myxtts.synthesis.reranking import generate_candidates, reranker_of
from myxtts.synthesis.speech import PieceReport, Speech, SpeechReport, SpokenPiece
from myxtts.synthesis.speech_model import (
    CODE_SECONDS,
    CheckedCodes,
    Codec,
    SpeechModel,
    StreamingDecoder,
    Text,
    TextBatch,
)
from myxtts.synthesis.splitting import Border, Piece, split_text
from myxtts.synthesis.timings import Source, WordTiming, code_starts, estimated_starts, timings, token_ends, words_of
from myxtts.synthesis.voice import Voice
from myxtts.text.languages import find_language, guessed_language, language_note

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

PIECES_AT_ONCE = 8
LEAST_DIVIDED_TOKENS = 30
"""Fewer are about six words, whose halves would be spoken worse than the whole."""
REMEMBERED_REFERENCES = 64
"""Encoded references that are kept; the one that was not used for longest goes first."""


@dataclass(frozen=True)
class _Planned:
    """A piece of the text with its tokens; none where nothing of it can be spoken."""

    piece: Piece
    ids: list[int]
    number: int
    last: bool
    part: bool = False
    """Of a piece that could not be spoken whole."""


@dataclass(frozen=True, kw_only=True)
class _Speaking:
    """`SpeakingOptions` with everything that the voice decides."""

    latents: VoiceLatents
    language: str
    seed: int
    speed: float
    sampling: Sampling
    candidates: int
    checks: HallucinationChecks | None

    def piece_seed(self, number: int) -> int:
        """A seed of its own for every piece; the first piece has the seed itself."""
        return (self.seed + number * 100_003) % (2**31 - 1)


class Synthesizer:
    """Speaks with one voice, whatever runtime computes it. Open it once and call it often; threads may share it."""

    def __init__(self, voice: Voice, model: SpeechModel) -> None:
        self.voice, self.model = voice, model
        self._sounding = voice.tokenizer.sounding()
        self._reranker = reranker_of(voice)
        self._encoded: OrderedDict[bytes, VoiceLatents] = OrderedDict()

    @property
    def sample_rate(self) -> int:
        return self.model.sample_rate

    @property
    def codec(self) -> Codec | None:
        """The voice's codec, for evaluating it; None where the voice has none."""
        return self.model.codec

    def speak(self, text: str, options: SpeakingOptions | None = None, **changes: Unpack[SpeakingKeywords]) -> Speech:
        """The whole text as one wave.

        `changes` are fields of `SpeakingOptions` by name and replace those of `options`: language, speaker, reference,
        seed, speed and others, which `myxtts.synthesis.options` and docs/speaking.md ("From Python") list. Raises
        `SynthesisError` where the text or the reference cannot be spoken, `ConfigError` for an option that cannot be.
        """
        speaking = self._resolved(text, replace(options or SpeakingOptions(), **changes))
        report = SpeechReport()
        pieces = list(self._pieces(text, speaking, report, streamed=False))
        wave = np.concatenate([piece.wave for piece in pieces])
        return Speech(wave, self.sample_rate, tuple(word for piece in pieces for word in piece.words), report)

    def stream(
        self,
        text: str,
        options: SpeakingOptions | None = None,
        *,
        report: SpeechReport | None = None,
        **changes: Unpack[SpeakingKeywords],
    ) -> Iterator[SpokenPiece]:
        """The samples of `speak`, piece by piece as they are made; `report`, if given, is filled on the way."""
        speaking = self._resolved(text, replace(options or SpeakingOptions(), **changes))
        yield from self._pieces(text, speaking, SpeechReport() if report is None else report, streamed=True)

    def latents(
        self,
        reference: Reference | Sequence[Reference] | None = None,
        *,
        speaker: str | None = None,
        language: str = "en",
    ) -> VoiceLatents:
        """Latents of the reference clips, of one of the voice's own speakers, or of a file of saved latents."""
        return self._latents(SpeakingOptions(reference=reference, speaker=speaker, language=language))

    def language_of(self, text: str, options: SpeakingOptions) -> str:
        """The code of the language that the text is spoken in."""
        if options.language is not None:
            return find_language(options.language).code
        speaker = self.voice.speakers.get(options.speaker or "")
        return guessed_language(text, speaker.language if speaker else None, self.voice.manifest.languages)

    def save_latents(self, path: str | Path, latents: VoiceLatents) -> None:
        """Keep latents in a file that `latents` and `--reference` read back."""
        references.save_latents(Path(path), latents, self.voice.sha256)

    def forget_references(self) -> None:
        """Encode references anew from now on; for a voice whose weights have changed."""
        self._encoded.clear()

    def _latents(self, options: SpeakingOptions) -> VoiceLatents:
        given = references.as_list(options.reference)
        saved = references.saved_latents(given)
        if isinstance(saved, VoiceLatents):
            return saved
        if saved is not None:
            model = self.voice.config.model
            return references.load_latents(saved, self.voice.sha256, (model.conditioning_latents, model.gpt_width))
        clips = [references.read_reference(clip) for clip in given if not isinstance(clip, VoiceLatents)]
        if not clips:
            speaker = references.choose_speaker(self.voice.speakers, options.speaker, options.language or "en")
            clips = [references.checked_reference(from_int16(speaker.wave), speaker.name)]
        if self.voice.config.data.normalise_loudness:
            clips = [normalise_loudness(clip) for clip in clips]
        key = hashlib.sha256(b"".join(hashlib.sha256(clip.tobytes()).digest() for clip in clips)).digest()
        # Several threads may be here: each step leaves the store whole, and at worst a reference is encoded twice.
        latents = self._encoded.pop(key, None)
        if latents is None:
            windows = references.windows(clips, self.voice.manifest.reference_seconds)
            latents = self.model.encode_reference(clips, windows)
        self._encoded[key] = latents
        while len(self._encoded) > REMEMBERED_REFERENCES:
            self._encoded.popitem(last=False)
        return latents

    def _resolved(self, text: str, options: SpeakingOptions) -> _Speaking:
        language = self.language_of(text, options)
        return _Speaking(
            latents=self._latents(replace(options, language=language)),
            language=language,
            seed=options.seed,
            speed=options.speed,
            sampling=options.sampling_over(self.voice.sampling),
            candidates=self._candidates(options),
            checks=options.checks,
        )

    def _candidates(self, options: SpeakingOptions) -> int:
        if self._reranker is not None:
            return options.candidates or CANDIDATES
        if options.candidates not in (None, 1):
            raise SynthesisError(
                f"--candidates is {options.candidates}, and nothing of this voice can choose among them",
                hint="leave it out; a voice that was trained with alignments and speaks by mels can",
            )
        return 1

    def _pieces(self, text: str, speaking: _Speaking, report: SpeechReport, *, streamed: bool) -> Iterator[SpokenPiece]:
        began = time.perf_counter()
        manifest = self.voice.manifest
        report.decoder = self.model.decoder_name
        report.language_note = language_note(text, speaking.language, manifest.languages)
        if speaking.sampling.guidance > 1 and not manifest.classifier_free_guidance:
            report.guidance_note = "--guidance makes this voice no better: it was trained without text dropout"
        planned = self._plan(text, speaking.language)
        report.unspoken = tuple(sorted(self.voice.tokenizer.unknown(text, speaking.language)))
        for made in self._parts(planned, speaking, streamed):
            report.elapsed_s = time.perf_counter() - began
            if made.report is not None:
                report.pieces.append(made.report)
            if report.first_sound_s is None and (made.report is None or made.report.seconds):
                report.first_sound_s = report.elapsed_s
            yield made
        if report.seconds == 0:
            raise SynthesisError(
                f"the voice made no sound of {_shown(text)}",
                hint="train it longer, or try another --seed; myxtts evaluate tells how good it is",
            )

    def _plan(self, text: str, language: str) -> list[_Planned]:
        """The text in pieces that the voice can speak at once; raises where nothing of it can be spoken."""
        planned = self._split(text, self.voice.longest_text_tokens, language)
        if not any(one.ids for one in planned):
            raise SynthesisError(
                f"nothing in {_shown(text)} can be spoken in {language!r}",
                hint="give words or numbers; is --language the text's own?",
            )
        return planned

    def _split(self, text: str, most_tokens: int, language: str) -> list[_Planned]:
        tokenizer = self.voice.tokenizer
        pieces = split_text(text, most_tokens, lambda part: len(tokenizer.encode(part, language)))
        planned = []
        for number, piece in enumerate(pieces):
            ids = tokenizer.encode(piece.text, language)
            speakable = any(sign.isalnum() for sign in tokenizer.decode(ids))
            planned.append(_Planned(piece, ids if speakable else [], number, number == len(pieces) - 1))
        return planned

    def _parts(self, planned: list[_Planned], speaking: _Speaking, streamed: bool) -> Iterator[SpokenPiece]:
        """One piece after the other; streamed, in parts where the decoder can make parts."""
        offset_s = 0.0
        at_once = 1 if streamed else PIECES_AT_ONCE
        for first in range(0, len(planned), at_once):
            for part in self._group(planned[first : first + at_once], speaking, streamed, offset_s):
                offset_s += len(part.wave) / self.sample_rate
                yield part

    def _group(
        self, group: Sequence[_Planned], speaking: _Speaking, streamed: bool, offset_s: float
    ) -> Iterator[SpokenPiece]:
        """Pieces that are generated together, decoded one by one."""
        # At another speed, where a sample stands depends on how many there are.
        decoder = None
        if streamed and speaking.speed == 1.0 and group[0].ids:
            decoder = self.model.streaming_decoder(speaking.latents.speaker_V)
        if decoder is not None:
            yield from self._streamed(group[0], speaking, decoder, offset_s)
            return
        for one, candidates in zip(group, self._generate(group, speaking), strict=True):
            for made in self._spoken(one, candidates, speaking, offset_s):
                offset_s += len(made.wave) / self.sample_rate
                yield made

    def _spoken(
        self, planned: _Planned, candidates: Sequence[CheckedCodes], speaking: _Speaking, offset_s: float
    ) -> Iterator[SpokenPiece]:
        """The piece, or its parts where all candidates of the whole have a fault."""
        if speaking.checks is not None and candidates and all(made.fault for made in candidates):
            parts = self._smaller(planned, speaking.language)
            if parts:
                yield from self._group(parts, speaking, False, offset_s)
                return
        if not candidates:
            note = "nothing in it can be spoken" if planned.piece.text.strip() else None
            silence = self._pause(planned, speaking)
            yield SpokenPiece(silence, (), PieceReport(text=planned.piece.text, note=note))
            return
        wave, start = np.zeros(0, np.float32), 0
        checked, decoded = self._best(candidates, planned, speaking)
        if len(decoded):
            trimmed = trim_silence(decoded, self.sample_rate)
            wave, start = faded(trimmed.wave, self.sample_rate), trimmed.start
        yield self._finished(planned, checked, speaking, offset_s, wave, len(wave), start)

    def _smaller(self, planned: _Planned, language: str) -> list[_Planned]:
        """The piece in about two; none where it is too short for that, or a part itself."""
        if planned.part or len(planned.ids) < LEAST_DIVIDED_TOKENS:
            return []
        halves = self._split(planned.piece.text, int(len(planned.ids) * 0.6), language)
        if len(halves) == 1:
            return []
        halves[-1] = replace(halves[-1], piece=Piece(halves[-1].piece.text, planned.piece.border))
        return [
            replace(
                half,
                number=planned.number + (place + 1) * 10_000,
                last=planned.last and half is halves[-1],
                part=True,
            )
            for place, half in enumerate(halves)
        ]

    def _best(
        self, candidates: Sequence[CheckedCodes], planned: _Planned, speaking: _Speaking
    ) -> tuple[CheckedCodes, np.ndarray]:
        """The candidate that fits its text best, and its wave."""
        sounding = [made for made in candidates if len(made.codes_N)]
        if not sounding:
            return candidates[0], np.zeros(0, np.float32)
        speaker_V = speaking.latents.speaker_V
        if self._reranker is None:
            made = sounding[0]
            wave = self.model.decode(made, planned.ids, speaker_V, speaking.speed)
        else:
            made, mel = self._reranker.best(self.model, sounding, planned.ids, speaker_V)
            wave = mel_to_wave(mel, speaking.speed)
        return made, np.nan_to_num(wave)

    def _generate(self, group: Sequence[_Planned], speaking: _Speaking) -> list[list[CheckedCodes]]:
        """Candidates of codes for each piece, all in one batch; none for a piece without tokens."""
        spoken = [one for one in group if one.ids]
        if not spoken:
            return [[] for _ in group]
        text_BU = np.full((len(spoken), max(len(one.ids) for one in spoken)), self.voice.tokenizer.pad_id, np.int32)
        for row, one in enumerate(spoken):
            text_BU[row, : len(one.ids)] = one.ids
        made = iter(
            generate_candidates(
                self.model,
                TextBatch(
                    speaking.latents.latents_LD[None],
                    text_BU,
                    [len(one.ids) for one in spoken],
                    speaking.sampling,
                    [speaking.piece_seed(one.number) for one in spoken],
                ),
                speaking.candidates,
                checks=speaking.checks,
                last_sounding=[self._last_sounding(one.ids) for one in spoken],
            )
        )
        return [next(made) if one.ids else [] for one in group]

    def _last_sounding(self, ids: Sequence[int]) -> int:
        """The last token that is pronounced; of a text without one, the last."""
        return max((place for place, token in enumerate(ids) if self._sounding[token]), default=len(ids) - 1)

    def _streamed(
        self, planned: _Planned, speaking: _Speaking, decoder: StreamingDecoder, offset_s: float
    ) -> Iterator[SpokenPiece]:
        """One piece in parts, while its codes are generated."""
        trim, samples = GrowingTrim(self.sample_rate), 0
        for latents_ND, checked in stream_checked(
            self.model,
            Text(speaking.latents.latents_LD, planned.ids, speaking.sampling, speaking.piece_seed(planned.number)),
            checks=speaking.checks,
            last_sounding=self._last_sounding(planned.ids),
        ):
            last = checked is not None
            wave = trim.add(np.nan_to_num(decoder.add(latents_ND, last=last)), last=last)
            samples += len(wave)
            if checked is not None:
                yield self._finished(planned, checked, speaking, offset_s, wave, samples, trim.start)
            elif len(wave):
                yield SpokenPiece(wave)

    def _finished(
        self,
        planned: _Planned,
        checked: CheckedCodes,
        speaking: _Speaking,
        offset_s: float,
        wave: np.ndarray,
        samples: int,
        start: int,
    ) -> SpokenPiece:
        """A piece, or its last part: `samples` of it in all, behind `start` that were cut off its front."""
        if checked.note:
            logger.warning("hallucination check: %s", checked.note)
        seconds = samples / self.sample_rate
        report = PieceReport(
            text=planned.piece.text,
            seconds=seconds,
            attempts=checked.attempts,
            fault=checked.fault if seconds else (checked.fault or "short"),
            cut_seconds=round(checked.cut_codes * CODE_SECONDS, 3),
            note=checked.note if seconds else f"no sound came out in {checked.attempts} attempts",
        )
        words = self._words(planned, checked, speaking, offset_s, offset_s - start / self.sample_rate, seconds)
        return SpokenPiece(np.concatenate([wave, self._pause(planned, speaking)]), words, report)

    def _pause(self, planned: _Planned, speaking: _Speaking) -> np.ndarray:
        border = Border.CHARACTER if planned.last else planned.piece.border
        return pause(border, self.sample_rate, speaking.speed)

    def _words(
        self,
        planned: _Planned,
        checked: CheckedCodes,
        speaking: _Speaking,
        begin_s: float,
        first_code_s: float,
        seconds: float,
    ) -> tuple[WordTiming, ...]:
        """The piece's words with their times in the whole speech."""
        words = words_of(planned.piece.text)

        def count_many(texts: list[str]) -> list[int]:
            return [len(ids) for ids in self.voice.tokenizer.encode_many(texts, speaking.language)]

        ends = token_ends(words, count_many, len(planned.ids))
        aligned = len(checked.spoken_token_N) == len(checked.codes_N) > 0
        starts = code_starts(ends, checked.spoken_token_N) if aligned else estimated_starts(ends, len(checked.codes_N))
        source: Source = "estimated" if not aligned else "aligner" if self._reranker is not None else "attention"
        return tuple(
            timings(
                words,
                starts,
                source,
                code_s=CODE_SECONDS / speaking.speed,
                offset_s=first_code_s,
                least_s=begin_s,
                most_s=begin_s + seconds,
            )
        )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
