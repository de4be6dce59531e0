"""Whole runs as processes: kill and resume number for number, signals, locks, other settings, a fresh start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import ROOT, run

STEPS = 24


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "demo"
    write_demo_corpus(folder, DemoSettings(minutes=1.0), workers=1)
    return folder


def arguments(corpus: Path, run_dir: Path, *more: str) -> list[str]:
    given = [
        *("train_main.py", "--train-data", str(corpus), "--run-dir", str(run_dir), "--model-size", "tiny"),
        *("--stage", "codec", "--batch-size", "4", "--max-steps", str(STEPS), "--log-every", "1"),
        *("--checkpoint-every", "5", "--validate-every", "10", "--cache-dir", str(corpus.parent / "cache")),
    ]
    return [*given, *more]


def started(corpus: Path, run_dir: Path, *more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}
    log = (run_dir.parent / f"{run_dir.name}.log").open("w")
    return subprocess.Popen(
        [sys.executable, *arguments(corpus, run_dir, *more)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        text=True,
    )


def losses(run_dir: Path) -> dict[int, float]:
    events = run_dir / "events.jsonl"
    if not events.exists():
        return {}
    found: dict[int, float] = {}
    for line in events.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the torn last line of a killed run
        if event["event"] == "step":
            found[event["step"]] = event["loss"]
    return found


def wait_for_step(process: subprocess.Popen[str], run_dir: Path, step: int) -> None:
    for _ in range(2400):
        if max(losses(run_dir), default=0) >= step:
            return
        assert process.poll() is None, (run_dir.parent / f"{run_dir.name}.log").read_text()
        time.sleep(0.1)
    raise AssertionError(f"step {step} was not reached")


def test_a_killed_run_continues_number_for_number(corpus: Path, tmp_path: Path) -> None:
    straight = run(*arguments(corpus, tmp_path / "straight"), TF_NUM_INTRAOP_THREADS="1")
    assert straight.returncode == 0, straight.stderr

    killed = started(corpus, tmp_path / "killed")
    wait_for_step(killed, tmp_path / "killed", 13)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = losses(tmp_path / "killed")
    resumed = run(*arguments(corpus, tmp_path / "killed"), TF_NUM_INTRAOP_THREADS="1")

    assert resumed.returncode == 0, resumed.stderr
    assert "continues at step" in resumed.stderr
    assert 13 <= max(before) < STEPS
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")
    assert sorted(losses(tmp_path / "straight")) == list(range(1, STEPS + 1))


def test_sigterm_saves_and_exits_0_a_second_run_is_refused_and_other_settings_too(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(corpus, folder, "--max-steps", "100000", "--epochs", "100000")
    wait_for_step(process, folder, 3)

    second = run(*arguments(corpus, folder))
    assert second.returncode == 1
    assert f"another run (process {process.pid}) is writing" in second.stderr

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert "Stopped and saved. To continue, run the same command again." in log
    assert list((folder / "checkpoints" / "codec").glob("step-*"))
    assert (folder / "report.html").is_file()

    other = run(*arguments(corpus, folder, "--seed", "7", "--dvae-width", "64"))
    assert other.returncode == 1
    assert "dvae_width: 192 in the run, 64 now" in other.stderr
    assert "seed: 0 in the run, 7 now" in other.stderr

    fresh = run(*arguments(corpus, folder, "--seed", "7", "--fresh", "--max-steps", "2"))
    assert fresh.returncode == 0, fresh.stderr
    assert list(folder.glob("earlier-*/checkpoints"))
    assert sorted(losses(folder)) == [1, 2]


def test_a_stage_without_the_one_before_it_is_refused(corpus: Path, tmp_path: Path) -> None:
    result = run(*arguments(corpus, tmp_path / "run", "--stage", "gpt"))

    assert result.returncode == 1
    assert "stage gpt needs stage codec" in result.stderr
    assert "--stage codec first" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        ("--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1", "--enable-memory-isolation"),
        ("--simulate-gpus", "3", "--data-gpu", "0", "--model-gpu", "1,2"),
    ],
    ids=["dual isolated", "hybrid"],
)
def test_both_stages_run_in_one_command_and_leave_a_voice(corpus: Path, tmp_path: Path, mode: tuple[str, ...]) -> None:
    every_stage = [word for word in arguments(corpus, tmp_path / "run", *mode) if word not in ("--stage", "codec")]
    every_stage[every_stage.index(str(STEPS))] = "3"

    result = run(*every_stage)

    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["stage"] for event in events if event["event"] == "stage_done"][:2] == ["codec", "gpt"]
    window = next(event for event in events if event["event"] == "window" and event["stage"] == "gpt")
    assert set(window["device_busy"]) >= {"/CPU:1", "/CPU:2"}
    assert (tmp_path / "run" / "voice" / "model.safetensors").is_file()
    order = ["Configuring Multi-GPU Mode", "completed successfully", "Intelligent GPU Pipeline", "Model will be placed"]
    positions = [result.stderr.index(line) for line in [*order, "Waiting up to", "Model training starting now"]]
    assert positions == sorted(positions)
