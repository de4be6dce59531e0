"""`myxtts synth TEXT --voice RUN --out FILE.wav`: speak one text, a file of texts or standard input."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from myxtts.cli.flags import parse_options
from myxtts.config import earlier
from myxtts.config.checks import at_least
from myxtts.errors import OutputError, SynthesisError
from myxtts.files import writing
from myxtts.monitoring.log import setup_speaking_log
from myxtts.monitoring.terminal import drop_output, escaped

if TYPE_CHECKING:
    from myxtts.synthesis.options import SpeakingOptions
    from myxtts.synthesis.speech import Speech, SpeechReport, SpokenPiece
    from myxtts.synthesis.synthesizer import Synthesizer

OUT_SUFFIXES = (".wav", ".flac", ".ogg")
SAMPLING_FLAGS = ("temperature", "top_k", "top_p", "repetition_penalty", "guidance")


@dataclass(frozen=True, kw_only=True)
class SynthOptions:
    """Speak: with the built-in voice, or with one of your own.

    Examples:
      myxtts synth "Hello there." --out hello.wav
      myxtts synth "Hello." --reference CLIP.wav                       (in the voice of a clip)
      myxtts synth "Hello." --voice runs/mine --out hello.wav
      myxtts synth "Hello." --voice runs/mine --stream | aplay -f S16_LE -r 22050
    """

    text: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """What to say; several texts make several numbered files, `-` reads standard input."""

    text_file: Path | None = None
    """File of texts, one a line."""

    voice: Path = Path("base")
    """A built-in voice, a run folder, or a voice folder that training, export or import-xtts made."""

    reference: tuple[Path, ...] = ()
    """Clips of the speaker to clone, or one file of --save-voice; without it, a speaker of the training."""

    speaker: str | None = None
    """A speaker of the training by name, instead of --reference."""

    language: str | None = None
    """Language of the text (en, fa, de, ...). By default told by its letters and the speaker: Latin ones are English
    where the voice knows it."""

    out: Path | None = None
    """File to write: wav, flac or ogg; by default speech.wav."""

    stream: bool = False
    """Write raw 16-bit PCM to standard output while it is made, instead of --out."""

    save_voice: Path | None = None
    """Save the latents of the reference in this .safetensors file, which --reference reads back at once."""

    timings: Path | None = None
    """Write when each word is spoken: .json or .srt."""

    report: Path | None = None
    """Write what the hallucination checks did and how long everything took, as JSON."""

    seed: int = 0
    """The same seed gives the same speech."""

    speed: float = 1.0
    """1.2 is a fifth faster, at the same pitch."""

    temperature: float | None = None
    """Of the sampling: below 1 prefers likely codes; 0 is greedy. By default the voice's own, 0.5 for ours."""

    top_k: int | None = None
    """Sample from the k likeliest codes only; 0 for all. By default the voice's own, 50 for ours."""

    top_p: float | None = None
    """Sample from the likeliest codes up to this probability together. By default the voice's own, 0.85 for ours."""

    repetition_penalty: float | None = None
    """Above 1 makes codes that were generated already less likely. By default the voice's own: 1 (off) for one that
    was trained with alignments, 2 without, XTTS's for an imported one."""

    guidance: float | None = None
    """Scale of classifier-free guidance, at twice the time; 1 is off. By default the voice's own."""

    candidates: int | None = None
    """Generate each piece so many times and speak the one that fits its text best. By default 8 where the voice can
    tell (the built-in one, and those trained here that speak by mels), else 1."""

    hallucination_checks: bool = True
    """Detect loops, skips and speech that does not stop, try again with another seed, and cut what stays wrong."""

    runtime: Literal["litert", "tensorflow"] | None = None
    """What computes: litert starts at once and needs little memory, tensorflow can use a GPU. By default litert where
    it is installed; it exports the voice the first time it speaks."""

    simulate_gpus: int = 0
    """Let this many CPU devices stand for GPUs, with TensorFlow."""

    debug: bool = False
    """Show the traceback of an error."""


OPTIONS = SynthOptions


def main(argv: list[str]) -> int:
    options = parse_options(SynthOptions, current_flags(argv), command="synth")
    texts = read_texts(options.text, options.text_file)
    speaking = refuse_early(options, texts)
    logging.captureWarnings(True)
    setup_speaking_log()
    # The report says the same with the text beside it.
    logging.getLogger("myxtts.synthesis.synthesizer").setLevel(logging.ERROR)
    from myxtts.synthesis.opening import open_voice

    synthesizer = open_voice(options.voice, runtime=options.runtime, simulate_gpus=options.simulate_gpus)
    return speak_all(synthesizer, options, speaking, texts)


def current_flags(argv: list[str]) -> list[str]:
    """The arguments with flags of version 0.1 under the names that they have now; prints a note for each."""
    for old in earlier.SPEAKING_FLAGS.keys() & set(argv):
        print(f"note: {old} is called {earlier.SPEAKING_FLAGS[old]} now", file=sys.stderr)
    return [earlier.SPEAKING_FLAGS.get(argument, argument) for argument in argv]


def refuse_early(options: SynthOptions, texts: list[str]) -> SpeakingOptions:
    """How the texts are to be spoken; raises what can be known to be wrong before TensorFlow is loaded."""
    from myxtts.synthesis.hallucinations import HallucinationChecks
    from myxtts.synthesis.options import SpeakingOptions
    from myxtts.synthesis.references import LATENTS_SUFFIX, read_reference

    speaking = SpeakingOptions(
        reference=options.reference or None,
        speaker=options.speaker,
        language=options.language,
        seed=options.seed,
        speed=options.speed,
        sampling_changes={name: value for name in SAMPLING_FLAGS if (value := getattr(options, name)) is not None},
        candidates=options.candidates,
        checks=HallucinationChecks() if options.hallucination_checks else None,
    )
    at_least("--simulate-gpus", options.simulate_gpus, 0, hint="0 uses the devices that are there")
    if options.stream and len(texts) > 1:
        raise SynthesisError(f"--stream got {len(texts)} texts", hint="stream one text at a time")
    if options.stream and options.out is not None:
        raise SynthesisError(
            f"--stream writes to standard output, and --out {options.out} was given too", hint="leave one of them out"
        )
    if names := [text for text in texts if len(text.split()) == 1 and text.lower().endswith(OUT_SUFFIXES)]:
        raise SynthesisError(
            f"{names[0]!r} is a file's name and no text to speak",
            hint=f'name the text first: myxtts synth "Hello." --out {names[0]}',
        )
    if options.stream and sys.stdout is None:
        raise OutputError("--stream writes to standard output, which is closed", hint="send it to a file or a program")
    _refuse_outputs(options, len(texts))
    for clip in options.reference:
        if clip.is_dir():
            raise SynthesisError(f"reference {clip} is a folder", hint=f"name its clips: --reference {clip}/*.wav")
        if not clip.is_file():
            raise SynthesisError(f"reference {clip} is not there", hint="give an audio file, or a file of --save-voice")
        if clip.suffix != LATENTS_SUFFIX:
            read_reference(clip)
    return speaking


def _refuse_outputs(options: SynthOptions, count: int) -> None:
    """Raise where a file that would be written has a wrong suffix, no folder, or the name of a folder or another."""
    from myxtts.synthesis.references import check_latents_name
    from myxtts.synthesis.timings import check_timings_name

    out = output_file(options)
    if out.suffix.lower() not in OUT_SUFFIXES:
        raise SynthesisError(
            f"--out {out.name} has the suffix {out.suffix!r}",
            hint=f"name it {', '.join(OUT_SUFFIXES)}",
        )
    if options.timings is not None:
        check_timings_name(options.timings)
    if options.save_voice is not None:
        check_latents_name(options.save_voice)
    of_each = {
        "--out": None if options.stream else out,
        "--timings": options.timings,
        "--report": options.report,
    }
    numbers = range(1, count + 1)
    written = [(flag, numbered(path, n, count)) for flag, path in of_each.items() if path is not None for n in numbers]
    for folder in {path.parent for _, path in written}:
        if not folder.is_dir():
            raise SynthesisError(f"folder {folder} is not there", hint="make it first, or choose another one")
    taken: dict[Path, str] = {}
    for flag, path in written if options.save_voice is None else [*written, ("--save-voice", options.save_voice)]:
        if path.is_dir():
            raise SynthesisError(f"{path} is a folder", hint="name a file to write, which may be one inside of it")
        other = taken.setdefault(path.resolve(), flag)
        if other != flag:
            raise SynthesisError(f"{other} and {flag} would both write {path}", hint="give each a name of its own")


def read_texts(given: tuple[str, ...], file: Path | None, *, flag: str = "--text-file") -> list[str]:
    """Texts of the command line, of standard input for `-`, and the lines of the file that `flag` names."""
    texts = [
        _standard_input().strip() if text == "-" else _argument(number, text) for number, text in enumerate(given, 1)
    ]
    if file is not None:
        content = _standard_input() if str(file) == "-" else _decoded(f"{flag} {file}", file.read_bytes)
        texts += [line for line in content.splitlines() if line.strip()]
    if not any(text.strip() for text in texts):
        usage = 'myxtts synth "Hello." --out hello.wav, or --text-file FILE'
        hint = usage if file is None else f"write one text a line into {file}"
        empty = ": standard input is empty" if "-" in (*given, str(file)) else ""
        raise SynthesisError(f"there is no text to speak{empty}", hint=hint)
    return texts


def _argument(number: int, text: str) -> str:
    # Python keeps bytes of the command line that are no text as lone surrogates, which no file takes.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SynthesisError(f"text {number} is not UTF-8 text: {error}", hint="type or paste it as UTF-8") from error
    return text


def _standard_input() -> str:
    if sys.stdin is None:
        raise SynthesisError("there is no text to speak: standard input is closed", hint="pipe a text into it")
    return _decoded("standard input", sys.stdin.buffer.read)


def _decoded(name: str, read: Callable[[], bytes]) -> str:
    """UTF-8, with or without the byte order mark that Windows puts first."""
    try:
        return read().decode("utf-8-sig")
    except OSError as error:
        raise SynthesisError(
            f"{name} cannot be read: {error.strerror}", hint="check the path and its rights"
        ) from error
    except UnicodeDecodeError as error:
        raise SynthesisError(f"{name} is not UTF-8 text: {error}", hint="save it as UTF-8") from error


def output_file(options: SynthOptions) -> Path:
    return options.out or Path("speech.wav")


def numbered(out: Path, number: int, count: int) -> Path:
    """`speech.wav`, or `speech-003.wav` where there are several."""
    return out if count == 1 else out.with_name(f"{out.stem}-{number:03d}{out.suffix}")


def speak_all(synthesizer: Synthesizer, options: SynthOptions, speaking: SpeakingOptions, texts: list[str]) -> int:
    """Speak and write every text; of several, one that cannot be spoken is named and does not stop the others."""
    languages = [synthesizer.language_of(text, speaking) for text in texts]
    latents = synthesizer.latents(speaking.reference, speaker=speaking.speaker, language=languages[0])
    if options.save_voice is not None:
        synthesizer.save_latents(options.save_voice, latents)
    speaking = replace(speaking, reference=latents, speaker=None)
    if options.stream:
        return _stream(synthesizer, options, replace(speaking, language=languages[0]), texts[0])
    failed = 0
    for number, text in enumerate(texts, 1):
        try:
            speech = synthesizer.speak(text, speaking, language=languages[number - 1])
        except SynthesisError as error:
            if len(texts) == 1:
                raise
            failed += 1
            print(escaped(f"text {number} was not spoken: {error.problem}"), file=sys.stderr)
        else:
            _write_speech(options, speech, number, len(texts))
    return 1 if failed else 0


def _write_speech(options: SynthOptions, speech: Speech, number: int, count: int) -> None:
    from myxtts.synthesis.timings import write_timings

    path = numbered(output_file(options), number, count)
    speech.save(path)
    if options.timings is not None:
        write_timings(numbered(options.timings, number, count), speech.words)
    _write_report(options, speech.report, number, count)
    made = f"made in {speech.report.elapsed_s:.1f} s"
    print(f"{path}: {speech.seconds:.1f} s of speech, {made} ({speech.report.decoder})")


def _stream(synthesizer: Synthesizer, options: SynthOptions, speaking: SpeakingOptions, text: str) -> int:
    from myxtts.synthesis.speech import SpeechReport, write_pcm16
    from myxtts.synthesis.timings import WordTiming, write_timings

    began = time.perf_counter()
    report = SpeechReport()
    words: list[WordTiming] = []

    def pieces() -> Iterator[SpokenPiece]:
        for piece in synthesizer.stream(text, speaking, report=report):
            words.extend(piece.words)
            yield piece

    def write_files() -> None:
        if options.timings is not None:
            write_timings(options.timings, words)
        _write_report(options, report, 1, 1)

    try:
        samples = write_pcm16(pieces(), sys.stdout.buffer)
    except BrokenPipeError:  # The program at the other end was closed.
        write_files()
        raise
    except OutputError:
        drop_output(sys.stdout)
        raise
    write_files()
    print(
        f"first sound after {report.first_sound_s:.2f} s, all of {samples / synthesizer.sample_rate:.1f} s after "
        f"{time.perf_counter() - began:.2f} s; raw PCM, 16 bit little endian, mono, {synthesizer.sample_rate} Hz",
        file=sys.stderr,
    )
    return 0


def _write_report(options: SynthOptions, report: SpeechReport, number: int, count: int) -> None:
    for line in report.lines():
        print(escaped(line), file=sys.stderr)
    if options.report is not None:
        path = numbered(options.report, number, count)
        with writing(path):
            path.write_text(json.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
