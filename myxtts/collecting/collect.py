"""Long recordings to a corpus: plan the cuts, write and recognise the pieces, set the doubtful ones aside.

All that is written goes through `CollectedFolder` and is kept: a call that was killed goes on with the next piece.
A recording that cannot be used does not stop the others.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.audio.io import read_audio, write_audio
from myxtts.collecting.pauses import CutLimits
from myxtts.collecting.quality import measured, sound_problem, text_problem
from myxtts.collecting.recording import Plan, plan_cuts, read_pieces
from myxtts.collecting.script import Match, match_pieces, script_words
from myxtts.collecting.sounds import SoundAligner
from myxtts.data.collected import CollectedFolder, Heard, Kept, SetAside, one_line, opened, piece_id
from myxtts.errors import DataError, MetricError, UsageError
from myxtts.evaluation.metrics import FIRST_SOUNDS, Recogniser, reason_of

Progress = Callable[[int, int], None]
"""Called with the pieces that are done and all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectRequest:
    """What to collect, and how."""

    recordings: Sequence[Path]
    out: Path
    language: str
    speaker: str | None = None
    """For all recordings; otherwise each file's name is its speaker."""
    script: str | None = None
    workers: int = 1
    limits: CutLimits = field(default_factory=CutLimits)


@dataclass
class Collected:
    """What became of the recordings of a call."""

    pieces: int = 0
    kept: int = 0
    kept_s: float = 0.0
    speech_s: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    """How many pieces were set aside, by kind of reason."""
    earlier: list[str] = field(default_factory=list)
    """Recordings that an earlier call finished."""
    failed: dict[str, str] = field(default_factory=dict)
    """Recordings that cannot be used, and why."""


def collect(
    request: CollectRequest, recogniser: Recogniser | SoundAligner, progress: Progress = lambda done, total: None
) -> Collected:
    """Collect into `request.out`; raises only if no recording can be used, or nothing can be written or recognised.

    A `SoundAligner` needs a script, and recognises nothing: it finds the script's words in the pieces.
    """
    names = recording_names(request.recordings)
    if isinstance(recogniser, SoundAligner):
        recogniser.word_labels(script_words(request.script or "", request.language), request.language)
    result = Collected()
    with opened(request.out) as folder, ThreadPoolExecutor(request.workers) as pool:
        to_do = {}
        for name, path in names.items():
            if folder.begin(name, _source(request, path, recogniser)):
                to_do[name] = path
            else:
                result.earlier.append(name)
        plans = _plans(to_do, request.limits, pool, result)
        run = _Run(request, recogniser, folder, pool, progress, total=sum(len(plan.spans) for plan in plans.values()))
        try:
            for name, plan in plans.items():
                pieces = run.recognise(name, to_do[name], plan)
                matches = _script_matches(request, recogniser, folder, name, pieces)
                _publish(request, folder, name, pieces, matches, result)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing more is begun
    return result


def recording_names(recordings: Sequence[Path]) -> dict[str, Path]:
    """The recordings by the name that their pieces get; raises for two of one name."""
    names: dict[str, Path] = {}
    for path in recordings:
        name = "".join("_" if sign in "|/\\" or not sign.isprintable() else sign for sign in path.stem.strip())
        if name in names:
            raise UsageError(
                f"{names[name]} and {path} have one name, {name!r}, and so would their pieces",
                hint="rename one of the files",
            )
        if not path.is_file():
            raise DataError(f"there is no recording {path}", hint="name audio files; a shell expands FOLDER/*.wav")
        names[name] = path
    return names


def _source(request: CollectRequest, path: Path, recogniser: Recogniser | SoundAligner) -> dict[str, Any]:
    """All that a recording's pieces depend on."""
    status = path.stat()
    return {
        "kind": "collect",
        "size": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "language": request.language,
        "speaker": request.speaker,
        "recogniser": recogniser.name,
        "script": None if request.script is None else hashlib.sha256(request.script.encode()).hexdigest(),
        "limits": asdict(request.limits),
    }


def _plans(to_do: dict[str, Path], limits: CutLimits, pool: ThreadPoolExecutor, result: Collected) -> dict[str, Plan]:
    """Where to cut each recording; one that cannot be used is in `result.failed`."""
    planned = {name: pool.submit(plan_cuts, path, limits) for name, path in to_do.items()}
    plans = {}
    for name, future in planned.items():
        try:
            plans[name] = future.result()
        except DataError as error:
            result.failed[name] = error.problem
            if len(result.failed) == len(to_do) and not result.earlier:
                raise
    return plans


class _Run:
    """The pieces of a call: written in order, recognised several at once, noted by this thread alone."""

    def __init__(
        self,
        request: CollectRequest,
        recogniser: Recogniser | SoundAligner,
        folder: CollectedFolder,
        pool: ThreadPoolExecutor,
        progress: Progress,
        *,
        total: int,
    ) -> None:
        self._request, self._recogniser, self._folder, self._pool = request, recogniser, folder, pool
        self._progress, self._total = progress, total
        self._done = self._successes = self._failures = 0

    def recognise(self, name: str, path: Path, plan: Plan) -> list[Heard]:
        """All pieces of a recording; those that no earlier call did are written and recognised."""
        heard = self._folder.heard(name)
        wanted = [number for number in range(len(plan.spans)) if number not in heard]
        self._advance(len(plan.spans) - len(wanted))
        waiting: dict[Future[str], Heard] = {}
        for number, samples in read_pieces(path, plan, wanted):
            first, last = plan.spans[number]
            floor_db = float(np.median(plan.floor_db[first:last]))
            quality = measured(samples, plan.levels_db[first:last], floor_db, plan.rate)
            problem = sound_problem(quality, self._request.limits)
            write_audio(self._folder.wav(piece_id(name, number)), samples, plan.rate)
            piece = Heard(number, plan.seconds(first), plan.seconds(last), problem, "")
            if problem is not None or isinstance(self._recogniser, SoundAligner):
                heard[number] = piece
                self._folder.add(name, piece)
                self._advance(1)
                continue
            waiting[self._pool.submit(self._recogniser.transcribe, samples, plan.rate)] = piece
            while len(waiting) >= 2 * self._request.workers:
                self._take(name, waiting, heard)
        while waiting:
            self._take(name, waiting, heard)
        return [piece for _, piece in sorted(heard.items())]

    def _take(self, name: str, waiting: dict[Future[str], Heard], heard: dict[int, Heard]) -> None:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            piece = waiting.pop(future)
            try:
                text = one_line(future.result())
            except Exception as error:  # noqa: BLE001 - others' code
                heard[piece.number] = self._failed(piece, error)  # and not noted: the next call tries it again
            else:
                self._successes += 1
                heard[piece.number] = replace(piece, text=text)
                self._folder.add(name, heard[piece.number])
            self._advance(1)

    def _failed(self, piece: Heard, error: Exception) -> Heard:
        """The piece, set aside; a recogniser that fails on each of the first pieces would fail on all."""
        self._failures += 1
        reason = reason_of(error)
        if not self._successes and self._failures == FIRST_SOUNDS:
            raise MetricError(
                f"{self._recogniser.name} failed on each of the first {FIRST_SOUNDS} pieces: {reason}",
                hint="mend it, or choose another: --recogniser or --recogniser-command",
            ) from error
        return replace(piece, problem=f"recogniser failed: {reason}")

    def _advance(self, pieces: int) -> None:
        self._done += pieces
        self._progress(self._done, self._total)


def _script_matches(
    request: CollectRequest,
    recogniser: Recogniser | SoundAligner,
    folder: CollectedFolder,
    name: str,
    pieces: Sequence[Heard],
) -> dict[int, Match]:
    """What the pieces of a recording speak of the script, by number: from what was recognised in them, or their sound.

    By sound those with a problem are aligned too: the script goes on in them.
    """
    if request.script is None:
        return {}
    if isinstance(recogniser, SoundAligner):
        sounds = (folder.wav(piece_id(name, piece.number)) for piece in pieces)
        posteriors = [recogniser.posteriors(read_audio(path, longest_s=math.inf)) for path in sounds]
        matches = recogniser.match(posteriors, request.script, request.language)
        return {piece.number: match for piece, match in zip(pieces, matches, strict=True)}
    heard = {piece.number: piece.text for piece in pieces if piece.problem is None and piece.text}
    script = script_words(request.script, request.language)
    return dict(zip(heard, match_pieces(list(heard.values()), script, request.language), strict=True))


def _publish(
    request: CollectRequest,
    folder: CollectedFolder,
    name: str,
    pieces: Sequence[Heard],
    matches: Mapping[int, Match],
    result: Collected,
) -> None:
    """Decide about every piece of a recording, and write its lines."""
    speaker = one_line(request.speaker or name)
    kept, aside = [], []
    for piece in pieces:
        text, reason = decide(piece, matches.get(piece.number), request.language)
        own, seconds = piece_id(name, piece.number), piece.end_s - piece.start_s
        result.pieces += 1
        result.speech_s += seconds
        if reason is None:
            kept.append(Kept(own, text, speaker, request.language))
            result.kept_s += seconds
        else:
            result.reasons[reason.partition(":")[0]] += 1
            aside.append(SetAside(own, reason, text, speaker, request.language, name, piece.start_s, piece.end_s))
    result.kept += len(kept)
    folder.finish(name, kept, aside)


def decide(piece: Heard, match: Match | None, language: str) -> tuple[str, str | None]:
    """A piece's text, which is the script's where that fits, and the reason for setting it aside or None."""
    poor = None if match is None else match.problem
    text = piece.text if match is None or (poor and piece.text) else match.text
    return text, piece.problem or poor or text_problem(text, piece.end_s - piece.start_s, language)
