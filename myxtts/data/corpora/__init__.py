"""Corpora as users have them: finds the form of a folder by itself, or takes the one that was named."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.corpora.common_voice import TABLE_NAMES, read_common_voice
from myxtts.data.corpora.entry import CorpusListing, Entry, Notice, Refusal
from myxtts.data.corpora.ljspeech import METADATA_NAMES, read_ljspeech
from myxtts.data.corpora.manifest import MANIFEST_NAMES, read_manifest
from myxtts.data.corpora.text_lines import storable
from myxtts.data.corpora.vctk import AUDIO_FOLDERS, TEXT_FOLDER, read_vctk
from myxtts.errors import ConfigError, DataError
from myxtts.text.languages import AUTO, CODES, find_language, foreign_script

__all__ = ["AudioFile", "CorpusListing", "Entry", "Notice", "Refusal", "list_corpus", "storable"]

_MOST_FOREIGN = 0.2
"""Share of texts in letters of another language from which on it is the language that is wrong, and no clip."""

_TRANSCRIPTS = {"ljspeech": METADATA_NAMES, "common-voice": TABLE_NAMES, "jsonl": MANIFEST_NAMES}
_SUFFIX_FORMATS = {
    ".csv": "ljspeech",
    ".txt": "ljspeech",
    ".psv": "ljspeech",
    ".tsv": "common-voice",
    ".jsonl": "jsonl",
}


def list_corpus(corpus: Path, *, corpus_format: str = "auto", language: str = "en") -> CorpusListing:
    """List a corpus: a folder, or the transcript file inside it when there are several to choose from."""
    try:
        if not corpus.exists():
            raise DataError(f"{corpus} is not there", hint="give the folder that holds metadata.csv and wavs/")
        language = AUTO if language == AUTO else find_language(language).code
        name, transcript = _choose(corpus, corpus_format)
        listing = _read(corpus, name, transcript, language)
    except OSError as error:
        where = error.filename or corpus
        raise DataError(f"{where} cannot be read: {error.strerror}", hint="check the path and its rights") from error
    if not listing.entries and not listing.refusals:
        raise DataError(
            f"{corpus} is an empty corpus: {transcript or TEXT_FOLDER} names no clips",
            hint="each line of an LJSpeech metadata.csv is id|text|normalised text",
        )
    if language == AUTO:
        _guess_languages(listing)
    _unify_languages(listing)
    _refuse_foreign_scripts(listing)
    return listing


def _read(corpus: Path, name: str, transcript: Path | None, language: str) -> CorpusListing:
    root = corpus.parent if corpus.is_file() else corpus
    speaker = storable(root.resolve().name) or "speaker"
    if transcript is None:
        return read_vctk(root, language=language)
    if name == "ljspeech":
        return read_ljspeech(root, transcript, language=language, speaker=speaker)
    if name == "common-voice":
        return read_common_voice(root, transcript, language=language, speaker=speaker)
    return read_manifest(root, transcript, language=language, speaker=speaker)


def _guess_languages(listing: CorpusListing) -> None:
    """A language for every clip that its transcript names none for."""
    from myxtts.text.guessing import guess_languages

    unnamed = [number for number, entry in enumerate(listing.entries) if entry.language == AUTO]
    guessed = guess_languages(listing.entries[number].text for number in unnamed)
    if unnamed and not any(guessed):
        raise DataError(
            f"--language is auto, and no text of {listing.root} tells its language",
            hint=f"name the language: --language {'|'.join(CODES)}",
        )
    for number, code in zip(unnamed, guessed, strict=True):
        assert code is not None  # where one text tells, the others take the commonest
        listing.entries[number] = dataclasses.replace(listing.entries[number], language=code)


def _refuse_foreign_scripts(listing: CorpusListing) -> None:
    """Leave out clips whose text their language is not written in; where those are many, the language is wrong.

    A language read by another's rules trains a voice that nobody understands, and shows only after hours.
    """
    kept: list[Entry] = []
    foreign: list[Entry] = []
    for entry in listing.entries:
        (kept if foreign_script(entry.text, entry.language) is None else foreign).append(entry)
    if len(foreign) > _MOST_FOREIGN * len(listing.entries):
        raise _wrong_language(listing, foreign)
    for entry in foreign:
        script = foreign_script(entry.text, entry.language)
        reason = f"most of the text is in {script} letters, which {entry.language!r} is not written in"
        listing.refuse(entry.file, entry.line, entry.id, reason)
    listing.entries = kept


def _wrong_language(listing: CorpusListing, foreign: list[Entry]) -> DataError:
    from myxtts.text.guessing import guess_languages

    first = foreign[0]
    guessed = Counter(code for code in guess_languages(entry.text for entry in foreign[:200]) if code is not None)
    flags = [f"--language {code}" for code, _ in guessed.most_common(1)] + ["--language auto (each clip by its text)"]
    return DataError(
        f"{len(foreign)} of {len(listing.entries)} texts of {listing.root} are not in the letters of their language "
        f"{first.language!r}; the first: {first.file}, line {first.line}, is in "
        f"{foreign_script(first.text, first.language)} letters",
        hint=f"add {' or '.join(flags)}; where the transcript has a language column, correct it there",
    )


def _unify_languages(listing: CorpusListing) -> None:
    """Give every clip its language's one code (`en-US` is `en`); refuse what no front end reads."""
    codes: dict[str, str | None] = {}
    kept = []
    for entry in listing.entries:
        if entry.language not in codes:
            try:
                codes[entry.language] = find_language(entry.language).code
            except ConfigError:
                codes[entry.language] = None
        code = codes[entry.language]
        if code is None:
            reason = f"the language {entry.language[:40]!r} is not one of: {' '.join(CODES)}"
            listing.refuse(entry.file, entry.line, entry.id, reason)
        else:
            kept.append(entry if code == entry.language else dataclasses.replace(entry, language=code))
    listing.entries = kept


def _choose(corpus: Path, corpus_format: str) -> tuple[str, Path | None]:
    """The format and the transcript file; no file for VCTK, whose transcripts are a tree."""
    if corpus.is_file():
        found = _SUFFIX_FORMATS.get(corpus.suffix.lower()) if corpus_format == "auto" else corpus_format
        if found not in _TRANSCRIPTS:
            raise DataError(
                f"{corpus} is not a transcript file of a known kind",
                hint="give a folder, or a .csv (LJSpeech), .tsv (Common Voice) or .jsonl file",
            )
        return found, corpus
    wanted = [*_TRANSCRIPTS, "vctk"] if corpus_format == "auto" else [corpus_format]
    for name in wanted:
        if name == "vctk":
            if (corpus / TEXT_FOLDER).is_dir() and any((corpus / folder).is_dir() for folder in AUDIO_FOLDERS):
                return name, None
            continue
        for file_name in _TRANSCRIPTS[name]:
            if (corpus / file_name).is_file():
                return name, corpus / file_name
    manifests = sorted(corpus.glob("*.jsonl")) if "jsonl" in wanted else []
    if len(manifests) == 1:
        return "jsonl", manifests[0]
    looked_for = ", ".join(file_name for name in wanted for file_name in _TRANSCRIPTS.get(name, ("txt/ with wav48*/",)))
    raise DataError(
        f"{corpus} is no corpus of a known form: looked for {looked_for}",
        hint="write a metadata.csv of id|text lines beside wavs/, or give the transcript file itself",
    )
