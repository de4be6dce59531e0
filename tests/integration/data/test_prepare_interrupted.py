"""Preparing through kills, dead and hanging workers and a full disk: nothing half-written is read, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from myxtts.config.data import DataConfig
from myxtts.data.batching import batches
from myxtts.data.corpora import Entry, list_corpus
from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.prepare import prepare
from myxtts.data.prepared import open_prepared
from myxtts.data.shard_jobs import ShardJob, read_result
from myxtts.data.shard_pool import run_jobs
from myxtts.errors import DataError
from myxtts.text.tokenizer import train_tokenizer
from tests.corpus_maker import batch_digest, folder_digest, make_ljspeech, settings
from tests.processes import ROOT

CLIPS = 200

PREPARE = [sys.executable, "-m", "tests.programs", "corpora", "prepared"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ljspeech(tmp_path_factory.mktemp("source") / "corpus", seconds=[2 + 0.02 * n for n in range(CLIPS)])


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "prepared"
    return prepare(corpus, settings(out), out=out, workers=1).path


def start_prepare(corpus: Path, out: Path) -> subprocess.Popen[bytes]:
    # A shell that starts the tests in the background makes its children deaf to Ctrl-C; this one must hear it.
    return subprocess.Popen(
        [*PREPARE, str(corpus), str(out)],
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(condition: object, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, "prepare ended before it could be disturbed"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def finished_shards(beside: Path) -> list[Path]:
    return list(beside.glob(".prepared.building-*/part-*.json"))


def epoch_digests(folder: Path) -> list[str]:
    prepared = open_prepared(folder)
    return [batch_digest(batch) for batch in batches(prepared, config=DataConfig(batch_seconds=30.0), seed=3, epochs=1)]


def test_after_kill_9_the_next_run_goes_on_and_the_batches_are_identical(
    corpus: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "prepared"
    process = start_prepare(corpus, out)
    wait_for(lambda: finished_shards(tmp_path), process)
    process.kill()
    process.wait()
    assert not out.exists()
    [building] = tmp_path.glob(".prepared.building-*")
    finished = {path.name: path.stat().st_ino for path in building.glob("part-*.json")}
    shards = {path.name: path.stat().st_ino for path in building.glob("shard-*") if path.name.replace(
        "shard", "part").replace(".array_record", ".json") in finished}  # fmt: skip
    with pytest.raises(DataError, match="not a prepared corpus"):
        open_prepared(building)

    prepared = prepare(corpus, settings(out), out=out, workers=1)

    assert shards
    assert {name: (prepared.path / name).stat().st_ino for name in shards} == shards, "finished shards were made again"
    assert folder_digest(prepared.path) == folder_digest(uninterrupted)
    assert epoch_digests(prepared.path) == epoch_digests(uninterrupted)


def test_workers_end_when_their_parent_is_killed(corpus: Path, tmp_path: Path) -> None:
    process = start_prepare(corpus, tmp_path / "prepared")
    wait_for(lambda: len(psutil.Process(process.pid).children()) == 2, process)
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.wait()

    _, alive = psutil.wait_procs(workers, timeout=60)

    assert not alive


def test_a_killed_worker_is_replaced_and_nothing_is_refused(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "prepared"
    process = start_prepare(corpus, out)
    wait_for(lambda: finished_shards(tmp_path), process)
    psutil.Process(process.pid).children()[0].kill()

    assert process.wait(timeout=120) == 0
    assert folder_digest(out) == folder_digest(uninterrupted)


def test_a_clip_that_hangs_its_decoder_is_refused_and_the_rest_goes_on(corpus: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    entries = list_corpus(corpus).entries[:4]
    hanging = AudioFile(str(tmp_path / "pipe.wav"), 0, 0)
    entries[2] = Entry(entries[2].id, hanging, "Hangs.", "speaker", "en", "metadata.csv", 3)
    tokenizer = train_tokenizer("characters", [("abc", "en")], 300)
    tokenizer.save(tmp_path / "tokenizer.json")
    setup = {"folder": str(tmp_path), "settings": {}, "tokenizer": str(tmp_path / "tokenizer.json")}

    outcomes: list[bool] = []
    run_jobs([ShardJob(0, entries)], setup, workers=1, on_clip=outcomes.append, timeout_seconds=4)

    result = read_result(tmp_path, 0)
    assert result is not None
    assert len(result.wave_samples) == 3
    assert [(refusal.line, refusal.reason) for refusal in result.refusals] == [
        (3, "the clip took longer than 4 s to decode")
    ]
    assert outcomes == [False, False, True, False]


def test_a_worker_leaves_no_copy_of_espeaks_library_behind(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    train_tokenizer("phonemes", [("abc", "en")], 300).save(tmp_path / "tokenizer.json")
    setup = {"folder": str(tmp_path), "settings": {}, "tokenizer": str(tmp_path / "tokenizer.json")}

    run_jobs([ShardJob(0, list_corpus(corpus).entries[:2])], setup, workers=1, on_clip=lambda refused: None)

    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_full_disk_names_the_place_and_keeps_what_is_done(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "prepared"
    # Clips grow longer, so early shards fit below the limit on a file's size and later ones do not.
    limit = sorted(path.stat().st_size for path in uninterrupted.glob("shard-*"))[2]
    command = [*PREPARE, str(corpus), str(out), str(limit)]

    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert process.returncode != 0
    message = process.stderr.strip().splitlines()[-2:]
    assert "DataError" in message[0]
    assert f"cannot write {out}:" in message[0]
    assert "File too large" in message[0]
    assert "finished shard(s) are kept" in message[0]
    assert "free some space" in message[1]
    assert not out.exists()
    kept = len(finished_shards(tmp_path))
    assert kept >= 1
    assert not list(tmp_path.glob(".prepared.building-*/.*.part"))
    assert folder_digest(prepare(corpus, settings(out), out=out).path) == folder_digest(uninterrupted)


def test_ctrl_c_ends_the_workers_and_keeps_what_is_done(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "prepared"
    process = start_prepare(corpus, out)
    wait_for(lambda: finished_shards(tmp_path), process)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=60) != 0
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    assert folder_digest(prepare(corpus, settings(out), out=out).path) == folder_digest(uninterrupted)
