"""VCTK form: `txt/p225/p225_001.txt` beside `wav48_silence_trimmed/p225/p225_001_mic1.flac` (or `wav48/…wav`).

The speaker is the folder's name. Of two microphones the first is taken, the second where the first is missing.
"""

from __future__ import annotations

from pathlib import Path

from myxtts.data.corpora.audio_files import AudioFile, AudioFinder, NameRefusedError
from myxtts.data.corpora.entry import CorpusListing, Entry, Notice
from myxtts.data.corpora.text_lines import read_lines
from myxtts.errors import DataError

TEXT_FOLDER = "txt"
AUDIO_FOLDERS = ("wav48_silence_trimmed", "wav48", "wav22", "wav16", "wav")


def read_vctk(root: Path, *, language: str) -> CorpusListing:
    """List the corpus by its transcripts; speakers without any transcript (p315) are refused as a whole."""
    listing = CorpusListing(root, "vctk")
    finder = AudioFinder(root, AUDIO_FOLDERS)
    seen: dict[str, int] = {}
    speakers = sorted(path for path in (root / TEXT_FOLDER).iterdir() if path.is_dir())
    for folder in speakers:
        for transcript in sorted(folder.glob("*.txt")):
            _read_clip(listing, finder, seen, transcript, language)
    for name in AUDIO_FOLDERS:
        for folder in sorted(path for path in (root / name).glob("*") if path.is_dir()):
            if not (root / TEXT_FOLDER / folder.name).is_dir():
                listing.refuse(f"{name}/{folder.name}", 0, folder.name, "the speaker has audio but no transcripts")
    return listing


def _read_clip(
    listing: CorpusListing, finder: AudioFinder, seen: dict[str, int], transcript: Path, language: str
) -> None:
    file = str(transcript.relative_to(listing.root))
    speaker, clip_id = transcript.parent.name, transcript.stem
    listing.transcripts.append(transcript)
    try:
        lines = list(read_lines(transcript, language))
        audio = _find(finder, f"{speaker}/{clip_id}")
    except (NameRefusedError, DataError) as error:
        listing.refuse(file, 1, clip_id, error.problem if isinstance(error, DataError) else str(error))
        return
    if any(line.text is None for line in lines):
        listing.refuse(file, 1, clip_id, f"the text is neither UTF-8 nor the usual code page of {language!r}")
        return
    if any(line.code_page for line in lines):
        listing.notices.append(Notice(file, 1, f"not UTF-8; read as {lines[0].code_page}"))
    text = " ".join((line.text or "").strip() for line in lines)
    listing.add(Entry(clip_id, audio, text, speaker, language, file, 1), seen)


def _find(finder: AudioFinder, name: str) -> AudioFile:
    for suffix in ("_mic1", "_mic2"):
        try:
            return finder.find(name + suffix)
        except NameRefusedError:
            continue
    return finder.find(name)
