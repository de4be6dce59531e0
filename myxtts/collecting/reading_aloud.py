"""Sentences read aloud, one by one: record, look at the take, keep it or take it again.

The sound card is behind `Microphone`, the person behind `Person`: the session itself needs neither. Kept takes go
through `CollectedFolder`, each at once, so that a session may end at any moment and go on later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from myxtts.audio.io import write_audio
from myxtts.collecting.pauses import FRAMES_PER_S, CutLimits, speech_runs
from myxtts.collecting.quality import Quality, measured, sound_problem
from myxtts.collecting.recording import frame_levels
from myxtts.data.collected import CollectedFolder, Heard, Kept, one_line, piece_id
from myxtts.data.demo_texts import DEMO_LANGUAGES, draw_text
from myxtts.errors import DeviceError, MissingDependencyError, UsageError, how_to_install
from myxtts.evaluation.metrics import Wave

INSTALL_SOUND = how_to_install("record")
READ_LIMITS = CutLimits(shortest_s=0.4, longest_s=20.0)
"""What training takes: a reader makes the pauses, no cut is needed."""
_BLOCKS_PER_S = 10
_EDGE_S = 0.3
_METER_SIGNS, _METER_DB = 30, 60.0
_TOO_LOUD_DB = -1.0


class Microphone(Protocol):
    """A sound card that records mono samples in [-1, 1]."""

    sample_rate: int

    def start(self, on_block: Callable[[Wave], None]) -> None:
        """Record from now on; `on_block` gets the samples as they come, from any thread."""

    def stop(self) -> str | None:
        """End the recording; what went wrong in it, or None."""


class Person(Protocol):
    """Who reads: sees lines and the level, and answers questions."""

    def show(self, line: str) -> None: ...

    def ask(self, question: str) -> str: ...

    def level(self, peak_db: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Take:
    """A sentence as it was read, without the pauses around it, and why it should be read again."""

    samples: Wave
    quality: Quality | None
    problem: str | None


def examine(samples: Wave, rate: int) -> Take:
    """Trim a take to its speech and check it."""
    whole_db, band_db = frame_levels(samples, rate)
    runs = speech_runs(band_db) if len(band_db) else []
    if not runs:
        return Take(samples, None, "no speech: is the microphone on, and the right one?")
    edge = round(_EDGE_S * FRAMES_PER_S)
    first, last = max(0, runs[0][0] - edge), min(len(whole_db), runs[-1][1] + edge)
    size = rate // FRAMES_PER_S
    cut = samples[first * size : last * size]
    quality = measured(cut, whole_db[first:last], float(np.percentile(whole_db, 10)), rate)
    return Take(cut, quality, sound_problem(quality, READ_LIMITS))


def meter(peak_db: float) -> str:
    """A level as a bar of fixed width."""
    filled = round(_METER_SIGNS * min(1.0, max(0.0, 1 + peak_db / _METER_DB)))
    warning = " too loud" if peak_db > _TOO_LOUD_DB else ""
    return f"[{'#' * filled:<{_METER_SIGNS}}] {max(peak_db, -_METER_DB):4.0f} dB{warning:9}"


def record_sentences(
    folder: CollectedFolder,
    sentences: Sequence[str],
    microphone: Microphone,
    person: Person,
    *,
    speaker: str,
    language: str,
) -> int:
    """Have the sentences read that this speaker has not read yet; how many were kept."""
    name = f"{speaker}_read".replace("/", "_").replace("\\", "_")
    folder.begin(name, {"kind": "record"})
    read = folder.heard(name)
    done = {piece.text for piece in read.values()}
    number, kept = max(read, default=-1) + 1, 0
    for place, sentence in enumerate(sentences, 1):
        if sentence in done:
            continue
        person.show(f"\n{place} of {len(sentences)}:  {sentence}")
        answer, take = _read_one(microphone, person)
        if answer == "q":
            break
        if take is None:
            continue
        piece = piece_id(name, number)
        write_audio(folder.wav(piece), take.samples, microphone.sample_rate)
        folder.append(Kept(piece, sentence, speaker, language))
        folder.add(name, Heard(number, 0.0, len(take.samples) / microphone.sample_rate, None, sentence))
        number, kept = number + 1, kept + 1
    return kept


def _read_one(microphone: Microphone, person: Person) -> tuple[str, Take | None]:
    """The last answer, and the take to keep or None where the sentence is skipped or the session ended."""
    while True:
        answer = _answer(person, "Enter starts recording, s skips the sentence, q ends: ", ("", "s", "q"))
        if answer:
            return answer, None
        take = _record_take(microphone, person)
        if take.quality is not None:
            person.show(
                f"{take.quality.seconds:.1f} s, speech at {take.quality.loudness_db:.0f} dB, "
                f"{take.quality.snr_db:.0f} dB above the noise"
            )
        if take.problem is not None:
            person.show(f"better read it again: {take.problem}")
        usual = "k" if take.problem is None else "r"
        question = f"k keeps it, r reads it again, s skips, q ends [{usual}]: "
        answer = _answer(person, question, ("", "k", "r", "s", "q")) or usual
        if answer == "k" and take.quality is None:
            person.show("there is nothing to keep")
        elif answer != "r":
            return answer, take if answer == "k" else None


def _answer(person: Person, question: str, known: Sequence[str]) -> str:
    while (answer := person.ask(question).strip().lower()) not in known:
        person.show(f"{answer!r} is none of these")
    return answer


def _record_take(microphone: Microphone, person: Person) -> Take:
    blocks: list[Wave] = [np.zeros(0, np.float32)]

    def keep(block: Wave) -> None:
        blocks.append(np.array(block, np.float32).reshape(-1))
        person.level(20 * float(np.log10(max(1e-5, float(np.abs(block).max(initial=0.0))))))

    microphone.start(keep)
    try:
        person.ask("recording; Enter stops ")
    finally:
        failure = microphone.stop()
    take = examine(np.concatenate(blocks), microphone.sample_rate)
    return take if failure is None else Take(take.samples, take.quality, failure)


def builtin_sentences(language: str, count: int) -> list[str]:
    """Sentences to read for who has none, always the same."""
    if language not in DEMO_LANGUAGES:
        raise UsageError(
            f"there are no sentences of ours in {language!r}, only in {', '.join(DEMO_LANGUAGES)}",
            hint="give some with --texts FILE, one a line",
        )
    rng = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < count:
        kind, text = draw_text(rng, language)
        if kind == "sentence":
            found[one_line(text)] = None
    return list(found)


class SoundCard:
    """A microphone of this machine, through sounddevice."""

    def __init__(self, device: str | None = None) -> None:
        try:
            import sounddevice
        except ImportError as error:
            raise MissingDependencyError(
                "recording needs sounddevice, which is not installed", hint=INSTALL_SOUND
            ) from error
        except OSError as error:  # the C library beneath it
            raise MissingDependencyError(
                f"recording needs PortAudio: {error}", hint="install it, on Debian: apt install libportaudio2"
            ) from error
        self._sounddevice = sounddevice
        self._device: Any = int(device) if device is not None and device.isdigit() else device
        try:
            found = sounddevice.query_devices(self._device, "input")
        except (ValueError, sounddevice.PortAudioError) as error:
            which = "no microphone was found" if device is None else f"there is no microphone {device!r}"
            raise DeviceError(
                f"{which}: {error}", hint="`python -m sounddevice` lists them; choose one with --device"
            ) from error
        self.sample_rate = int(found["default_samplerate"])
        self._stream: Any = None
        self._dropped = False

    def start(self, on_block: Callable[[Wave], None]) -> None:
        self._dropped = False

        def callback(block: Any, _frames: int, _time: Any, status: Any) -> None:
            self._dropped |= bool(status.input_overflow)
            on_block(block[:, 0])

        try:
            self._stream = self._sounddevice.InputStream(
                samplerate=self.sample_rate,
                channels=1,
                dtype="float32",
                device=self._device,
                blocksize=self.sample_rate // _BLOCKS_PER_S,
                callback=callback,
            )
            self._stream.start()
        except self._sounddevice.PortAudioError as error:
            raise DeviceError(
                f"the microphone cannot record: {error}", hint="is another program using it? choose one with --device"
            ) from error

    def stop(self) -> str | None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        return "samples were lost: the machine was too busy" if self._dropped else None
