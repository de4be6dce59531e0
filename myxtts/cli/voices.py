"""`myxtts voices`: the speakers of a voice, a line each, or a sample of one. Imports no TensorFlow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from myxtts.cli.flags import parse_options
from myxtts.monitoring.terminal import escaped

SAMPLE_TEXTS = {
    "en": "Hello there. This is how I sound.",
    "fa": "سلام. صدای من این است.",
    "de": "Guten Tag. So klingt meine Stimme.",
}


@dataclass(frozen=True, kw_only=True)
class VoicesOptions:
    """List the speakers of a voice, or write a sample of one.

    Examples:
      myxtts voices
      myxtts voices --sample af_heart --out heart.wav
      myxtts voices --voice runs/mine
    """

    voice: Path = Path("base")
    """A built-in voice, a run folder or a voice folder."""

    sample: str | None = None
    """Let this speaker say a sentence in its language."""

    out: Path | None = None
    """File of the sample: wav, flac or ogg; by default SPEAKER.wav."""


OPTIONS = VoicesOptions


def main(argv: list[str]) -> int:
    options = parse_options(VoicesOptions, argv, command="voices")
    if options.sample is not None:
        return write_sample(options.voice, options.sample, options.out)
    from myxtts.synthesis.references import load_speakers
    from myxtts.synthesis.voice import find_voice, voice_manifest

    folder = find_voice(options.voice)
    speakers = load_speakers(folder)
    width = max((len(name) for name in speakers), default=0)
    for speaker in speakers.values():
        print(f"{speaker.name:<{width}}  {speaker.language}")
    of_language = Counter(speaker.language for speaker in speakers.values())
    counted = ", ".join(f"{count} {language}" for language, count in of_language.items()) or "no speakers"
    languages = ", ".join(voice_manifest(folder).languages)
    print(f"{escaped(str(options.voice))}: {counted}; each speaks every language of the voice: {escaped(languages)}")
    if speakers:
        of_voice = "" if options.voice == VoicesOptions.voice else f" --voice {options.voice}"
        print(escaped(f"Hear one: myxtts voices{of_voice} --sample {next(iter(speakers))}"))
    return 0


def write_sample(voice: Path, name: str, out: Path | None) -> int:
    from myxtts.synthesis.opening import open_voice

    synthesizer = open_voice(voice)
    speaker = synthesizer.voice.speakers.get(name)
    language = speaker.language if speaker is not None and speaker.language in SAMPLE_TEXTS else "en"
    path = out or Path(f"{name}.wav")
    synthesizer.speak(SAMPLE_TEXTS[language], speaker=name, language=language).save(path)
    print(path)
    return 0
