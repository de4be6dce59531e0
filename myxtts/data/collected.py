"""The folder that `collect` and `record` write: a corpus in LJSpeech form, and how far each recording has come.

`metadata.csv` lists the pieces to learn from, `set_aside.jsonl` the others with their reasons; the sounds of both are
in `wavs/`, so that a line is all that a piece needs to change sides. The lines of a finished recording are never
written anew: corrections made by hand stay. What is not finished is in `.collect/`, a line for each piece.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from myxtts.errors import DataError, OutputError
from myxtts.files import make_folder, replacing, try_lock, writing
from myxtts.text.languages import foreign_script

METADATA, SET_ASIDE, WAVS = "metadata.csv", "set_aside.jsonl", "wavs"
_STATE = ".collect"
_MARKER = "folder.json"
_VERSION = 1
_NUMBER = re.compile(r"_\d{5}$")


@dataclass(frozen=True, slots=True)
class Kept:
    """A line of metadata.csv."""

    id: str
    text: str
    speaker: str
    language: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """A line of set_aside.jsonl: a piece that is doubtful, and why."""

    id: str
    reason: str
    text: str
    speaker: str
    language: str
    recording: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of a piece: where it is, why its sound is not good enough, or what was recognised in it."""

    number: int
    start_s: float
    end_s: float
    problem: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece as a person reviews it: kept, or set aside for a reason."""

    id: str
    text: str
    speaker: str
    language: str
    kept: bool
    reason: str | None = None


DROPPED = "dropped by hand"


def one_line(text: str) -> str:
    """A transcript as it can stand between two bars."""
    return " ".join(text.replace("|", " ").split())


def piece_id(name: str, number: int) -> str:
    return f"{name}_{number + 1:05d}"


def _recording_of(piece: str) -> str:
    return _NUMBER.sub("", piece)


class CollectedFolder:
    """Reads and writes the folder; hold it with `opened`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / _STATE

    def wav(self, piece: str) -> Path:
        return self.path / WAVS / f"{piece}.wav"

    def begin(self, name: str, source: Mapping[str, Any]) -> bool:
        """Whether a recording is still to be done; what an earlier call left of it is kept if it was the same one."""
        state = self._read_state(name)
        if state is not None and state.get("source") == dict(source):
            return not state.get("finished")
        if state is not None and state.get("source", {}).get("kind") != source["kind"]:
            raise OutputError(
                f"{self.path} has pieces named {name} that another command made", hint="name another --out folder"
            )
        if state is not None and state.get("finished"):
            old = state.get("source", {})
            changed = ", ".join(sorted(key for key in source if old.get(key) != source[key])) or "version"
            raise OutputError(
                f"{self.path} has {name} already, collected otherwise (changed: {changed})",
                hint="name another --out folder, or delete this one to collect everything anew",
            )
        with writing(self.path):
            for stale in self._state.glob(f"{_literal(name)}.jsonl"):
                stale.unlink()
            for wav in (self.path / WAVS).glob(f"{_literal(name)}_*.wav"):
                if _recording_of(wav.stem) == name:
                    wav.unlink()
            self._write_state(name, {"source": dict(source), "finished": False})
        return True

    def heard(self, name: str) -> dict[int, Heard]:
        """The pieces that are done, by number; a last line that a kill cut short is none."""
        path = self._state / f"{name}.jsonl"
        found = {}
        for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else ():
            try:
                piece = Heard(**json.loads(line))
            except (ValueError, TypeError):
                continue
            if self.wav(piece_id(name, piece.number)).is_file():
                found[piece.number] = piece
        return found

    def add(self, name: str, piece: Heard) -> None:
        """Note that a piece is done; its sound is there already."""
        with writing(self._state), (self._state / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            # The line break first: what a kill left of an earlier line ends there.
            file.write("\n" + json.dumps(asdict(piece), ensure_ascii=False))

    def finish(self, name: str, kept: Sequence[Kept], aside: Sequence[SetAside]) -> None:
        """Publish the lines of a recording, beside those of the others as they are, and note that it is finished."""
        with writing(self.path):
            others = [row for row in self._lines(METADATA) if _recording_of(row.split("|")[0].strip()) != name]
            self._write_lines(METADATA, [*others, *map(_row, kept)])
            doubts = [line for line in self._lines(SET_ASIDE) if _recording_of(_id_of(line)) != name]
            self._write_lines(SET_ASIDE, [*doubts, *(json.dumps(asdict(one), ensure_ascii=False) for one in aside)])
            self._write_state(name, {**(self._read_state(name) or {}), "finished": True})

    def append(self, one: Kept) -> None:
        """Publish one line, in the place of any with its id."""
        with writing(self.path):
            others = [row for row in self._lines(METADATA) if row.split("|")[0].strip() != one.id]
            self._write_lines(METADATA, [*others, _row(one)])

    def pieces(self) -> list[Piece]:
        """All pieces of finished recordings, by id."""
        found = []
        for line in self._lines(METADATA):
            own, text, *_, speaker, language = (part.strip() for part in (line + "||||").split("|")[:5])
            found.append(Piece(own, text, speaker, language, kept=True))
        for aside in self._set_aside():
            found.append(Piece(aside.id, aside.text, aside.speaker, aside.language, kept=False, reason=aside.reason))
        return sorted(found, key=lambda piece: piece.id)

    def review(self, own: str, text: str, *, kept: bool) -> Piece:
        """Give a piece its text and its side, at once; raises `KeyError` where there is none of this id."""
        text = one_line(text)
        piece = {piece.id: piece for piece in self.pieces()}[own]
        if kept and not text:
            raise DataError("a piece without words cannot be kept", hint="write what is said in it, or drop it")
        script = foreign_script(text, piece.language) if kept and piece.language else None
        if script is not None:
            raise DataError(
                f"the text is in {script} letters, which {piece.language!r} is not written in",
                hint="write it in the recording's language; where that is another, collect it again with --language",
            )
        if kept:
            self.append(Kept(own, text, piece.speaker, piece.language))
            asides = [aside for aside in self._set_aside() if aside.id != own]
        else:
            asides = [self._aside(one, own, text) for one in self._set_aside()]
            if piece.kept:
                asides.append(self._dropped(piece, text))
        with writing(self.path):
            self._write_lines(SET_ASIDE, [json.dumps(asdict(one), ensure_ascii=False) for one in asides])
            if not kept:
                rows = [row for row in self._lines(METADATA) if row.split("|")[0].strip() != own]
                self._write_lines(METADATA, rows)
        return replace(piece, text=text, kept=kept, reason=None if kept else piece.reason or DROPPED)

    def _dropped(self, piece: Piece, text: str) -> SetAside:
        name = _recording_of(piece.id)
        at = [heard for number, heard in self.heard(name).items() if piece_id(name, number) == piece.id]
        start_s, end_s = (at[0].start_s, at[0].end_s) if at else (0.0, 0.0)
        return SetAside(piece.id, DROPPED, text, piece.speaker, piece.language, name, start_s, end_s)

    @staticmethod
    def _aside(one: SetAside, own: str, text: str) -> SetAside:
        return replace(one, text=text) if one.id == own else one

    def _set_aside(self) -> list[SetAside]:
        found = []
        for line in self._lines(SET_ASIDE):
            try:
                found.append(SetAside(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{self.path / SET_ASIDE} has a line that is none of collect's: {line[:80]!r}",
                    hint="delete the line, or mend it",
                ) from error
        return found

    def _lines(self, name: str) -> list[str]:
        path = self.path / name
        try:
            text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8: {error}", hint="save it as UTF-8 in your editor") from error
        return [line for line in text.split("\n") if line.strip()]

    def _write_lines(self, name: str, lines: Iterable[str]) -> None:
        with replacing(self.path / name) as part:
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _read_state(self, name: str) -> dict[str, Any] | None:
        try:
            state = json.loads((self._state / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) else None

    def _write_state(self, name: str, state: Mapping[str, Any]) -> None:
        with replacing(self._state / f"{name}.json") as part:
            part.write_text(json.dumps(state, ensure_ascii=False, indent=1), encoding="utf-8")


def _row(one: Kept) -> str:
    return "|".join((one.id, one.text, one.text, one.speaker, one.language))


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _id_of(line: str) -> str:
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError):
        return ""


def is_collected(path: Path) -> bool:
    """Whether a folder is one that `collect` or `record` made."""
    return (path / _STATE / _MARKER).is_file()


@contextmanager
def opened(path: Path) -> Iterator[CollectedFolder]:
    """The folder, new or one of ours, for this process alone; refuses a folder that holds something else."""
    state = path / _STATE
    if path.exists() and not path.is_dir():
        raise OutputError(f"--out {path} is a file", hint="name a folder")
    if path.is_dir() and any(path.iterdir()) and not is_collected(path):
        raise OutputError(
            f"--out {path} is not empty and was not made by collect or record",
            hint="name a new or an empty folder",
        )
    with writing(path):
        make_folder(state)
        make_folder(path / WAVS)
        with replacing(state / _MARKER, durable=False) as part:
            part.write_text(json.dumps({"version": _VERSION}), encoding="utf-8")
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(descriptor, state / "lock"):
            raise OutputError(f"another command is writing {path}", hint="wait for it to end, or name another --out")
        yield CollectedFolder(path)
    finally:
        os.close(descriptor)
