"""`myxtts record --out FOLDER --speaker NAME`: sentences to read aloud, one by one, become a corpus."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from myxtts.cli.flags import parse_options
from myxtts.cli.synth import read_texts
from myxtts.config.checks import at_least
from myxtts.errors import DataError, UsageError
from myxtts.monitoring.terminal import escaped
from myxtts.text.languages import find_language


@dataclass(frozen=True, kw_only=True)
class RecordArgs:
    """Read sentences aloud and record them, each with a level meter, and again until you keep it.

    The sound card needs an extra: `pip install -c constraints.txt '.[record]'` in the checkout. What is kept is saved
    at once; the same command continues with the sentences that are not read yet.

    Examples:
      myxtts record --out MY_FOLDER --speaker anna
      myxtts record --out MY_FOLDER --speaker sara --language fa --texts FILE   (sentences of your own, one a line)
    """

    out: Path
    """Folder of the corpus; new, or one that record or collect made."""

    speaker: str
    """Who reads."""

    language: str = "en"
    """Language of the sentences."""

    texts: Path | None = None
    """File of sentences, one a line; by default some of ours, in English or Persian."""

    sentences: int = 100
    """How many of ours to read."""

    device: str | None = None
    """Microphone, by its name or number; by default the system's."""


OPTIONS = RecordArgs


class Terminal:
    """The person at the keyboard."""

    def show(self, line: str) -> None:
        print(escaped(line))

    def ask(self, question: str) -> str:
        try:
            return input(question)
        except EOFError:  # no keyboard, or Ctrl-D
            return "q"

    def level(self, peak_db: float) -> None:
        from myxtts.collecting.reading_aloud import meter

        sys.stderr.write(f"\r{meter(peak_db)} ")
        sys.stderr.flush()


def main(argv: list[str]) -> int:
    args = parse_options(RecordArgs, argv, command="record")
    language = find_language(args.language).code
    speaker = " ".join(args.speaker.replace("|", " ").split())
    if not speaker:
        raise UsageError("--speaker is empty", hint="name who reads, as in --speaker anna")
    from myxtts.collecting.reading_aloud import SoundCard, builtin_sentences, record_sentences
    from myxtts.data.collected import one_line, opened

    if args.texts is not None:
        if not args.texts.is_file():
            raise DataError(f"--texts {args.texts} is not there", hint="name a file of sentences, one a line")
        sentences = [one_line(text) for text in read_texts((), args.texts, flag="--texts")]
    else:
        at_least("--sentences", args.sentences, 1, hint="100 sentences are about eight minutes of speech")
        sentences = builtin_sentences(language, args.sentences)
    microphone = SoundCard(args.device)
    with opened(args.out) as folder:
        kept = record_sentences(folder, sentences, microphone, Terminal(), speaker=speaker, language=language)
    print(f"{kept} sentences kept; corpus in {args.out}")
    return 0
