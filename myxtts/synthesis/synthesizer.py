"""Text to speech with a trained voice: normalise, split, generate with checks, decode, trim, join.

`Synthesizer.stream` hands out sound while it is made, `speak` all of it as one wave: the same samples, unless an
attempt fails of which a part was heard. Every text ends in speech or in a `SynthesisError`; what was not spoken stands
in the report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from myxtts.config.checks import check_seed
from myxtts.config.speaking import Sampling, check_speed
from myxtts.errors import SynthesisError
from myxtts.synthesis import references
from myxtts.synthesis.decoding import CODE_SECONDS, CodecDecoder, Decoder, HiFiGANDecoder, TrainedMelDecoder
from myxtts.synthesis.generation import Generator
from myxtts.synthesis.hallucinations import HallucinationChecks, Spoken, as_it_came, generate_checked, stream_checked
from myxtts.synthesis.joining import GrowingTrim, faded, pause, trim_silence
from myxtts.synthesis.listening import Listener, Reference
from myxtts.synthesis.loaded_voice import Voice, load_voice
from myxtts.synthesis.references import VoiceLatents
from myxtts.synthesis.speech import PieceReport, Speech, SpeechReport, SpokenPiece
from myxtts.synthesis.splitting import Border, Piece, split_text
from myxtts.synthesis.timings import WordTiming, code_starts, estimated_starts, timings, token_ends, words_of
from myxtts.text.languages import find_language, language_note

logger = logging.getLogger(__name__)

PIECES_AT_ONCE = 8


@dataclass(frozen=True)
class _Planned:
    """A piece with its tokens; none where nothing of it can be spoken."""

    piece: Piece
    ids: list[int]


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How one text is spoken."""

    latents: VoiceLatents
    language: str
    seed: int
    speed: float
    sampling: Sampling
    checks: HallucinationChecks | None


class Synthesizer:
    """Speaks with one voice. Build it once and call it often: compiled functions are kept."""

    def __init__(self, voice: str | Path | Voice, *, device: str | None = None) -> None:
        self._device = device
        with tf.device(device):
            self.voice = voice if isinstance(voice, Voice) else load_voice(voice)
            parts, names = self.voice.parts, self.voice.names
            self._generator = Generator(parts.gpt, alignment_heads=self.voice.alignment_heads)
            self._ctc_network = Listener(self.voice, device)
            self._sounding = self.voice.tokenizer.sounding()
            self.codec = CodecDecoder(parts.dvae, self.voice.postfilter.get("dvae")) if "dvae" in names else None
            self._decoder = self._choose_decoder()

    def _choose_decoder(self) -> Decoder:
        if {"hifigan", "speaker_encoder"} <= set(self.voice.names):
            return HiFiGANDecoder(self.voice.parts.hifigan)
        if self.codec is None:
            raise SynthesisError(
                "the voice has neither a decoder nor a codec", hint="a voice needs hifigan and speaker_encoder, or dvae"
            )
        if "mel_decoder" in self.voice.names:
            parts = self.voice.parts
            return TrainedMelDecoder(parts.mel_decoder, parts.dvae, self.voice.postfilter.get("mel_decoder"))
        return self.codec

    @property
    def sample_rate(self) -> int:
        return self._decoder.sample_rate

    # Speaking

    def speak(
        self,
        text: str,
        *,
        reference: Reference | Sequence[Reference] | None = None,
        speaker: str | None = None,
        language: str = "en",
        seed: int = 0,
        speed: float = 1.0,
        sampling: Sampling | None = None,
        checks: HallucinationChecks | None = HallucinationChecks(),  # noqa: B008 - frozen, so shared safely
    ) -> Speech:
        """The whole text as one wave; `checks=None` takes what comes, up to the model's own length limit."""
        latents = self.latents(reference, speaker=speaker, language=language)
        options = self._options(latents, language, seed, speed, sampling, checks)
        report = SpeechReport()
        pieces = list(self._pieces(text, options, report, streamed=False))
        wave = np.concatenate([piece.wave for piece in pieces])
        return Speech(wave, self.sample_rate, tuple(word for piece in pieces for word in piece.words), report)

    def stream(
        self,
        text: str,
        report: SpeechReport | None = None,
        *,
        reference: Reference | Sequence[Reference] | None = None,
        speaker: str | None = None,
        language: str = "en",
        seed: int = 0,
        speed: float = 1.0,
        sampling: Sampling | None = None,
        checks: HallucinationChecks | None = HallucinationChecks(),  # noqa: B008 - frozen, so shared safely
    ) -> Iterator[SpokenPiece]:
        """The samples of `speak`, piece by piece as they are made; `report`, if given, is filled on the way."""
        latents = self.latents(reference, speaker=speaker, language=language)
        options = self._options(latents, language, seed, speed, sampling, checks)
        yield from self._pieces(text, options, SpeechReport() if report is None else report, streamed=True)

    def _options(
        self,
        latents: VoiceLatents,
        language: str,
        seed: int,
        speed: float,
        sampling: Sampling | None,
        checks: HallucinationChecks | None,
    ) -> _Options:
        check_speed(speed)
        check_seed(seed)
        code = find_language(language).code
        return _Options(
            latents=latents,
            language=code,
            seed=seed,
            speed=speed,
            sampling=sampling or self.voice.sampling,
            checks=checks,
        )

    def _pieces(self, text: str, options: _Options, report: SpeechReport, *, streamed: bool) -> Iterator[SpokenPiece]:
        began = time.perf_counter()
        report.decoder = self._decoder.name
        report.language_note = language_note(text, options.language, self.voice.languages)
        if options.sampling.guidance > 1 and not self.voice.guided:
            report.guidance_note = "--guidance does this voice no good: it never learnt to speak without a text"
        planned = self._plan(text, options.language)
        report.unspoken = tuple(sorted(self.voice.tokenizer.unknown(text, options.language)))
        for made in self._parts(planned, options, streamed):
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

    def _parts(self, planned: list[_Planned], options: _Options, streamed: bool) -> Iterator[SpokenPiece]:
        """One piece after the other; streamed, in parts where the decoder can make parts."""
        offset_s = 0.0
        # At another speed, where a sample stands depends on how many there are.
        local = streamed and isinstance(self._decoder, HiFiGANDecoder) and options.speed == 1.0
        at_once = 1 if streamed else PIECES_AT_ONCE
        for first in range(0, len(planned), at_once):
            group = planned[first : first + at_once]
            if local and group[0].ids:
                for part in self._streamed(group[0], first, options, offset_s, last=first == len(planned) - 1):
                    offset_s += len(part.wave) / self.sample_rate
                    yield part
                continue
            for number, (one, spoken) in enumerate(
                zip(group, self._generate(group, first, options), strict=True), first
            ):
                made = self._sound(one, spoken, options, offset_s, last=number == len(planned) - 1)
                offset_s += len(made.wave) / self.sample_rate
                yield made

    def _plan(self, text: str, language: str) -> list[_Planned]:
        tokenizer = self.voice.tokenizer
        pieces = split_text(text, self.voice.longest_tokens, lambda part: len(tokenizer.encode(part, language)))
        planned = []
        for piece in pieces:
            ids = tokenizer.encode(piece.text, language)
            speakable = any(sign.isalnum() for sign in tokenizer.decode(ids))
            planned.append(_Planned(piece, ids if speakable else []))
        if not any(one.ids for one in planned):
            raise SynthesisError(
                f"nothing in {_shown(text)} can be spoken in {language!r}",
                hint="give words or numbers; is --language the text's own?",
            )
        return planned

    def _generate(self, group: Sequence[_Planned], first: int, options: _Options) -> list[Spoken | None]:
        rows = [number for number, one in enumerate(group) if one.ids]
        made: list[Spoken | None] = [None] * len(group)
        if not rows:
            return made
        width = max(len(group[row].ids) for row in rows)
        text_BU = np.full((len(rows), width), self.voice.tokenizer.pad_id, np.int32)
        for place, row in enumerate(rows):
            text_BU[place, : len(group[row].ids)] = group[row].ids
        lengths_B = np.array([len(group[row].ids) for row in rows], np.int32)
        seeds = [piece_seed(options.seed, first + row) for row in rows]
        latents_BLD = options.latents.latents_LD[None]
        with tf.device(self._device):
            if options.checks is None:
                made_B = self._generator.generate(
                    latents_BLD, text_BU, lengths_B, sampling=options.sampling, seeds=seeds
                )
                found = [as_it_came(made_B, place) for place in range(len(rows))]
            else:
                found = generate_checked(
                    self._generator,
                    latents_BLD,
                    text_BU,
                    lengths_B,
                    sampling=options.sampling,
                    seeds=seeds,
                    checks=options.checks,
                    last_sounding=[self._last_sounding(group[row].ids) for row in rows],
                )
        for row, one in zip(rows, found, strict=True):
            made[row] = one
        return made

    def _last_sounding(self, ids: Sequence[int]) -> int:
        """The last token that takes any time; of a text without one, the last."""
        return max((place for place, token in enumerate(ids) if self._sounding[token]), default=len(ids) - 1)

    def _streamed(
        self, planned: _Planned, number: int, options: _Options, offset_s: float, *, last: bool
    ) -> Iterator[SpokenPiece]:
        """One piece in parts, while its codes are made."""
        assert isinstance(self._decoder, HiFiGANDecoder)
        growing, trim, heard = self._decoder.begin(options.latents.speaker_V), GrowingTrim(self.sample_rate), 0
        parts = stream_checked(
            self._generator,
            options.latents.latents_LD[None],
            planned.ids,
            sampling=options.sampling,
            seed=piece_seed(options.seed, number),
            checks=options.checks,
            last_sounding=self._last_sounding(planned.ids),
        )
        while True:
            with tf.device(self._device):
                latents_ND, spoken = next(parts)
                made = growing.add(latents_ND, last=spoken is not None)
            wave = trim.add(np.nan_to_num(made), last=spoken is not None)
            heard += len(wave)
            if spoken is not None:
                yield self._ended(planned, spoken, options, offset_s, wave, heard, trim.start, last=last)
                return
            if len(wave):
                yield SpokenPiece(wave)

    def _sound(
        self, planned: _Planned, spoken: Spoken | None, options: _Options, offset_s: float, *, last: bool
    ) -> SpokenPiece:
        if spoken is None:
            note = "nothing in it can be spoken" if planned.piece.text.strip() else None
            silence = self._silence(planned.piece, options, last)
            return SpokenPiece(silence, (), PieceReport(text=planned.piece.text, note=note))
        wave, start = np.zeros(0, np.float32), 0
        if len(spoken.codes_N):
            with tf.device(self._device):
                made = self._decoder.decode(spoken, planned.ids, options.latents.speaker_V, options.speed)
            trimmed = trim_silence(np.nan_to_num(made), self.sample_rate)
            wave, start = faded(trimmed.wave, self.sample_rate), trimmed.start
        return self._ended(planned, spoken, options, offset_s, wave, len(wave), start, last=last)

    def _ended(
        self,
        planned: _Planned,
        spoken: Spoken,
        options: _Options,
        offset_s: float,
        wave: np.ndarray,
        heard: int,
        start: int,
        *,
        last: bool,
    ) -> SpokenPiece:
        """A piece, or its last part: `heard` samples of it in all, behind `start` that were cut off its front."""
        seconds = heard / self.sample_rate
        report = PieceReport(
            text=planned.piece.text,
            seconds=seconds,
            attempts=spoken.attempts,
            fault=spoken.fault if seconds else (spoken.fault or "short"),
            cut_seconds=round(spoken.cut_codes * CODE_SECONDS, 3),
            note=spoken.note if seconds else f"no sound came out in {spoken.attempts} attempts",
        )
        words = self._words(planned, spoken, options, offset_s, offset_s - start / self.sample_rate, seconds)
        return SpokenPiece(np.concatenate([wave, self._silence(planned.piece, options, last)]), words, report)

    def _silence(self, piece: Piece, options: _Options, last: bool) -> np.ndarray:
        return pause(Border.CHARACTER if last else piece.border, self.sample_rate, options.speed)

    def _words(
        self, planned: _Planned, spoken: Spoken, options: _Options, begin_s: float, zero_s: float, seconds: float
    ) -> tuple[WordTiming, ...]:
        words = words_of(planned.piece.text)

        def count_many(texts: list[str]) -> list[int]:
            return [len(ids) for ids in self.voice.tokenizer.encode_many(texts, options.language)]

        ends = token_ends(words, count_many, len(planned.ids))
        attended = len(spoken.spoken_token_N) == len(spoken.codes_N) > 0
        starts = code_starts(ends, spoken.spoken_token_N) if attended else estimated_starts(ends, len(spoken.codes_N))
        return tuple(
            timings(
                words,
                starts,
                "attention" if attended else "estimated",
                code_s=CODE_SECONDS / options.speed,
                offset_s=zero_s,
                least_s=begin_s,
                most_s=begin_s + seconds,
            )
        )

    # Whose voice

    def latents(
        self,
        reference: Reference | Sequence[Reference] | None = None,
        *,
        speaker: str | None = None,
        language: str = "en",
    ) -> VoiceLatents:
        """What the model knows of the reference clips, of one of the voice's own speakers, or of saved latents."""
        return self._ctc_network.latents(reference, speaker=speaker, language=language)

    def weights_changed(self, postfilter: Mapping[str, Sequence[float]]) -> None:
        """The voice has learnt on since it spoke last; `postfilter` is as in `Voice`."""
        self._ctc_network.forget()
        if self.codec is not None:
            self.codec.set_postfilter(postfilter.get("dvae"))
        if isinstance(self._decoder, TrainedMelDecoder):
            self._decoder.set_postfilter(postfilter.get("mel_decoder"))

    def save_latents(self, path: str | Path, latents: VoiceLatents) -> None:
        """Keep a reference's latents in a file that `latents` and `--reference` read back."""
        references.save_latents(Path(path), latents, self.voice.digest)


def piece_seed(seed: int, number: int) -> int:
    """A seed of its own for every piece; the first piece has the seed itself."""
    return (seed + number * 100_003) % (2**31 - 1)


def quick_checks(checks: HallucinationChecks | None = None) -> HallucinationChecks:
    """Guards that never try twice: for samples during training, where time counts more than the best attempt."""
    return replace(checks or HallucinationChecks(), retries=0)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
