"""`prepare`: a corpus becomes a folder of shards, once.

The folder is built beside its final place (`myxtts.data.building`) and takes its name when it is whole; every finished
shard stays through a kill, and the next call goes on from there. A fingerprint of the sources and of the settings that
shape the result decides whether a finished folder is still valid. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts.config.checks import at_least
from myxtts.config.data import DataConfig
from myxtts.data.building import BEGUN, begin, is_prepared, put_in_place, remove_unfinished, unfinished
from myxtts.data.corpora import CorpusListing, Refusal, list_corpus, storable
from myxtts.data.prepared import (
    FORMAT_VERSION,
    MANIFEST,
    REFUSED,
    REPORT,
    TOKENIZER,
    PreparedCorpus,
    open_prepared,
    read_manifest,
    seal,
    write_index,
)
from myxtts.data.report import build_report
from myxtts.data.shard_jobs import ShardJob, ShardResult, read_result, result_path, run_job, shard_path
from myxtts.data.shard_pool import run_jobs
from myxtts.data.shards import ShardWriteError, write_whole
from myxtts.errors import DataError
from myxtts.files import make_folder, try_lock
from myxtts.text.languages import CODES

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

SETTINGS = (
    "language",
    "corpus_format",
    "text_frontend",
    "vocab_size",
    "min_clip_seconds",
    "max_clip_seconds",
    "max_text_chars",
    "trim_silence",
    "normalise_loudness",
)
"""The settings that shape what is written; any other may change without a new preparation."""

_SMALLEST_SHARD, _LARGEST_SHARD, _SHARDS_WANTED = 32, 2048, 64
_LOCK_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class PrepareProgress:
    """How far preparing has come, in clips."""

    done: int
    refused: int
    total: int


Progress = Callable[[PrepareProgress], None]


class PreparingStopped(Exception):  # noqa: N818 - not an error: finished shards are kept, the next call goes on
    """It was asked to stop."""


def prepare(
    corpus_dir: str | Path,
    config: DataConfig,
    progress: Progress | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    out: str | Path | None = None,
    force: bool = False,
    workers: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PreparedCorpus:
    """Prepare a corpus, or open what an earlier call prepared; `PreparingStopped` soon after `should_stop` says so.

    `tokenizer` is used instead of one made for the corpus (a validation folder takes the training folder's).
    `workers` is the number of processes, by default one for each core that this process may use.
    """
    at_least("--workers", workers, 1, hint="leave it out for one process a core")
    corpus = Path(corpus_dir)
    listing = list_corpus(corpus, corpus_format=config.corpus_format, language=config.language)
    settings = {name: getattr(config, name) for name in SETTINGS}
    settings["tokenizer"] = None if tokenizer is None else _tokenizer_digest(tokenizer)
    fingerprint = _fingerprint(listing, settings)
    target = Path(out) if out is not None else _default_folder(corpus, config, settings)
    _refuse_foreign_folder(target)
    # Before the lock, which a cache on a read-only disk has no place for.
    if not force and (prepared := _reuse(target, fingerprint, locked=False)):
        return _as_found(prepared, corpus, config)
    with _writing(target), _lock(target, should_stop):
        if not force and (prepared := _reuse(target, fingerprint)):
            return _as_found(prepared, corpus, config)
        building = begin(target, fingerprint, afresh=force)
        if force or _reuse(building, fingerprint) is None:
            _Build(listing, config, building, fingerprint, progress, should_stop).run(tokenizer, workers)
        put_in_place(building, target)
    logger.info("prepared %s in %s", corpus, target)
    return open_prepared(target)


def _as_found(prepared: PreparedCorpus, corpus: Path, config: DataConfig) -> PreparedCorpus:
    _check_share(prepared.report["refused"], len(prepared), config, prepared.path / REFUSED)
    logger.info("%s is prepared already in %s", corpus, prepared.path)
    return prepared


class _Build:
    """One preparation in its temporary folder."""

    def __init__(
        self,
        listing: CorpusListing,
        config: DataConfig,
        folder: Path,
        fingerprint: str,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self._listing, self._config, self._folder, self._fingerprint = listing, config, folder, fingerprint
        self._report_progress, self._should_stop = progress, should_stop
        self._done = self._refused = 0
        entries = listing.entries
        size = min(_LARGEST_SHARD, max(_SMALLEST_SHARD, -(-len(entries) // _SHARDS_WANTED)))
        self._jobs = [ShardJob(at // size, entries[at : at + size]) for at in range(0, len(entries), size)]

    def run(self, tokenizer: Tokenizer | None, workers: int | None) -> None:
        remove_unfinished(self._folder)
        tokenizer = self._open_or_make_tokenizer(tokenizer)
        waiting = []
        for job in self._jobs:
            finished = read_result(self._folder, job.shard)
            if finished is None:
                waiting.append(job)
            else:
                self._count(len(job.entries), len(finished.refusals))
        if len(waiting) < len(self._jobs):
            logger.info("resuming: %d of %d shards are done", len(self._jobs) - len(waiting), len(self._jobs))
        workers = workers if workers is not None else len(os.sched_getaffinity(0))
        if workers <= 1 or len(waiting) <= 1:
            for job in waiting:
                run_job(self._folder, job, self._config, tokenizer, on_clip=self._on_clip)
        elif waiting:
            settings = {name: getattr(self._config, name) for name in SETTINGS}
            setup = {"folder": str(self._folder), "settings": settings, "tokenizer": str(self._folder / TOKENIZER)}
            run_jobs(waiting, setup, workers=workers, on_clip=lambda refused: self._count(1, int(refused)))
        self._finish()

    def _open_or_make_tokenizer(self, given: Tokenizer | None) -> Tokenizer:
        from myxtts.text.tokenizer import load_tokenizer, train_tokenizer

        path = self._folder / TOKENIZER
        if path.is_file():
            return load_tokenizer(path)
        if given is None:
            pairs = ((entry.text, entry.language) for entry in self._listing.entries)
            given = train_tokenizer(
                self._config.text_frontend, pairs, self._config.vocab_size, between=self._stop_if_asked
            )
        given.save(path)
        return given

    def _on_clip(self, _clip_id: str, refused: bool | None) -> None:
        if refused is not None:
            self._count(1, int(refused))

    def _stop_if_asked(self) -> None:
        if self._should_stop():
            raise PreparingStopped

    def _count(self, done: int, refused: int) -> None:
        self._stop_if_asked()
        self._done += done
        self._refused += refused
        if self._report_progress:
            early = len(self._listing.refusals)
            total = len(self._listing.entries) + early
            self._report_progress(PrepareProgress(self._done + early, self._refused + early, total))

    def _finish(self) -> None:
        """Write what is known of all shards: refusals, report and index first, the manifest last."""
        results = [result for job in self._jobs if (result := read_result(self._folder, job.shard)) is not None]
        if len(results) != len(self._jobs):
            raise ShardWriteError("a finished shard has disappeared")
        refusals = sorted(
            [*self._listing.refusals, *(refusal for result in results for refusal in result.refusals)],
            key=lambda refusal: (refusal.file, refusal.line),
        )
        lines = "".join(json.dumps(asdict(refusal), ensure_ascii=False) + "\n" for refusal in refusals)
        write_whole(self._folder / REFUSED, storable(lines).encode())
        clips = sum(len(result.wave_samples) for result in results)
        _check_share(len(refusals), clips, self._config, self._folder / REFUSED)
        self._write_index(results, refusals)
        for job in self._jobs:
            result_path(self._folder, job.shard).unlink()
        for log in self._folder.glob("worker-*.log"):
            log.unlink()
        remove_unfinished(self._folder)
        (self._folder / BEGUN).unlink()

    def _write_index(self, results: list[ShardResult], refusals: list[Refusal]) -> None:
        speakers = [name for result in results for name in result.speakers]
        languages = [name for result in results for name in result.languages]
        speaker_ids = {name: number for number, name in enumerate(sorted(set(speakers)))}
        # All that we speak, in their fixed order, so that an id means the same in every corpus.
        language_ids = {name: number for number, name in enumerate(CODES)}
        columns: dict[str, Any] = {
            "wave_samples": np.array([length for result in results for length in result.wave_samples], np.uint32),
            "text_tokens": np.array([length for result in results for length in result.text_tokens], np.uint32),
            "speaker": np.array([speaker_ids[name] for name in speakers], np.int32),
            "language": np.array([language_ids[name] for name in languages], np.uint8),
        }
        unknown: Counter[str] = Counter()
        for result in results:
            unknown.update(result.unknown)
        report = build_report(
            self._listing, columns["wave_samples"], columns["text_tokens"], speakers, languages, refusals, unknown
        )
        write_whole(self._folder / REPORT, storable(json.dumps(report, ensure_ascii=False, indent=1)).encode())
        manifest = {
            "version": FORMAT_VERSION,
            "fingerprint": self._fingerprint,
            "clip_list": self._listing.clip_list(refusals),
            "clips": len(speakers),
            "speakers": list(speaker_ids),
            "languages": list(language_ids),
            "index_crc32": write_index(self._folder, columns),
            "shards": [
                {
                    "file": shard_path(self._folder, job.shard).name,
                    "clips": len(result.wave_samples),
                    "size_bytes": result.size_bytes,
                    "crc32": result.crc32,
                }
                for job, result in zip(self._jobs, results, strict=True)
            ],
        }
        write_whole(self._folder / MANIFEST, json.dumps(seal(manifest, self._folder), ensure_ascii=False).encode())


def _fingerprint(listing: CorpusListing, settings: dict[str, Any]) -> str:
    """A digest of the settings and of every source's place, size and time; no file is read for it."""
    digest = hashlib.sha256(json.dumps([FORMAT_VERSION, listing.format, settings], sort_keys=True).encode())
    for transcript in listing.transcripts:
        stat = transcript.stat()
        digest.update(f"{transcript.resolve()}|{stat.st_size}|{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    for entry in listing.entries:
        audio = entry.audio
        digest.update(
            f"{entry.id}|{audio.path}|{audio.size_bytes}|{audio.mtime_ns}\n".encode("utf-8", "surrogateescape")
        )
    for refusal in listing.refusals:
        digest.update(f"{refusal.line}|{refusal.reason}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER
        tokenizer.save(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _default_folder(corpus: Path, config: DataConfig, settings: dict[str, Any]) -> Path:
    """One folder for each corpus and each set of settings, so that two trainings do not undo each other's cache."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "myxtts" / "prepared"
    base = Path(config.cache_dir) if config.cache_dir else caches
    key = hashlib.sha256(json.dumps([str(corpus.resolve()), settings], sort_keys=True).encode()).hexdigest()[:12]
    return base / f"{storable(corpus.resolve().name) or 'corpus'}-{key}"


def _refuse_foreign_folder(target: Path) -> None:
    if target.exists() and not is_prepared(target) and (target.is_file() or any(target.iterdir())):
        raise DataError(
            f"{target} is there and is not a prepared corpus; it will not be replaced",
            hint="give --out a new or empty folder",
        )


def _reuse(target: Path, fingerprint: str, *, locked: bool = True) -> PreparedCorpus | None:
    manifest = read_manifest(target)
    if manifest is None or manifest["fingerprint"] != fingerprint:
        return None
    try:
        return open_prepared(target)
    except DataError as error:
        if locked:  # Otherwise another process may just be putting it in its place.
            logger.warning("%s; it is built again", error.problem)
        return None


def _check_share(refused: int, clips: int, config: DataConfig, refused_path: Path) -> None:
    total = refused + clips
    share = refused / max(1, total)
    if clips and share <= config.max_refused_share:
        return
    first = ""
    if refused_path.is_file() and (line := refused_path.read_text(encoding="utf-8").partition("\n")[0]):
        with suppress(ValueError, TypeError, KeyError, RecursionError):  # of a file that somebody has edited
            refusal = json.loads(line)
            first = f"; the first: {refusal['file']}, line {refusal['line']}: {refusal['reason']}"
    limit, way_on = "every clip", ""
    if clips:
        limit = f"more than --max-refused-share {config.max_refused_share:g}"
        way_on = "; raise --max-refused-share to go on without them"
    raise DataError(
        f"{refused} of {total} clips were refused ({share:.0%}), {limit}{first}",
        hint=f"see {refused_path} for each line and reason{way_on}",
    )


@contextmanager
def _lock(target: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """One preparation of a folder at a time; a second caller waits and then finds it done."""
    make_folder(target.parent)
    # Only ever locked: whatever it holds, and whosever it is, it stays as it is.
    path = target.with_name(f".{target.name}.lock")
    with path.open("a") as file:
        if not try_lock(file.fileno(), path):
            logger.info("another process is preparing %s; waiting for it", target)
            while not try_lock(file.fileno(), path):
                if should_stop():
                    raise PreparingStopped
                time.sleep(_LOCK_POLL_S)
        yield


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into an error that says what was kept."""
    try:
        yield
    except (ShardWriteError, OSError) as error:
        kept = 0
        for building in unfinished(target):
            remove_unfinished(building)
            kept += len(list(building.glob("part-*.json")))
        raise DataError(
            f"cannot write {target}: {str(error)[:300]}; {kept} finished shard(s) are kept beside it",
            hint="free some space, or choose another place with --cache-dir or --out; the next run goes on from there",
        ) from error
