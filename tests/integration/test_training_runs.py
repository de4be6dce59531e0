"""Whole runs as processes: kill and resume number for number, signals, locks, other settings, a fresh start."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from myxtts.audio.mel import N_MELS
from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import run, run_forked
from tests.training_processes import ONE_THREAD, arguments, events, log_of, losses, started, wait_for_step

STEPS = 100
KILLS = int(os.environ.get("MYXTTS_TEST_KILLS", "2"))
"""Kills of one run, the first at step 37; 20 take some minutes: MYXTTS_TEST_KILLS=20 pytest -k killed FILE."""

CODEC = (
    *("--stage", "codec", "--max-steps", str(STEPS), "--samples", "0"),
    *("--checkpoint-every", "5", "--validate-every", "50"),
)
DUAL = ("--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1")
TWO_AND_ONE = ("--simulate-gpus", "3", "--data-gpu", "0,1", "--model-gpu", "2")
TWO_AND_TWO = ("--simulate-gpus", "4", "--data-gpu", "0,1", "--model-gpu", "2,3")
HYBRID = ("--simulate-gpus", "3", "--data-gpu", "0", "--model-gpu", "1,2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "demo"
    write_demo_corpus(folder, DemoSettings(minutes=0.5), workers=1)
    return folder


def kill_after(command: list[str], folder: Path, step: int, more_s: float) -> bool:
    """Start the run, kill -9 it some time after a step; whether it was still running."""
    process = started(command, folder)
    wait_for_step(process, folder, step)
    time.sleep(more_s)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_two_devices_killed_again_and_again_then_three_equal_100_straight_steps_on_one(
    corpus: Path, tmp_path: Path
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    # In an interpreter of its own: another order of Python's sets must not change a number.
    whole = run(*arguments(corpus, straight, *CODEC), **ONE_THREAD)
    assert whole.returncode == 0, whole.stderr
    command = arguments(corpus, killed, *CODEC, *DUAL)

    assert kill_after(command, killed, 37, 0.0)
    assert 37 <= max(losses(killed)) < STEPS
    drawn = random.Random(1)
    for _ in range(KILLS - 1):
        # While the process starts, or some steps on and at any moment of a step; near the end only while it starts.
        further = drawn.choice([0, 1, 1]) * drawn.randrange(1, 2 + (STEPS - 37) // (KILLS + 1))
        step = max(losses(killed)) + further
        starting = not further or step > STEPS - 25
        assert kill_after(command, killed, 0 if starting else step, drawn.uniform(0.0, 2.0 if starting else 0.1))
    resumed = run_forked(*arguments(corpus, killed, *CODEC, *TWO_AND_ONE), **ONE_THREAD)

    assert resumed.returncode == 0, resumed.stderr
    assert "continues at step" in resumed.stderr
    assert sorted(losses(straight)) == list(range(1, STEPS + 1))
    assert losses(killed) == losses(straight), "every loss that was ever computed, the lost ones too"
    last = Path("checkpoints", "codec", f"step-{STEPS:08d}", "model.safetensors")
    assert (killed / last).read_bytes() == (straight / last).read_bytes()
    assert not list(killed.rglob(".writing-*"))


@pytest.mark.slow
@pytest.mark.parametrize(("one", "two"), [(DUAL, TWO_AND_ONE), (HYBRID, TWO_AND_TWO)], ids=["2+1", "2+2"])
def test_a_second_data_device_changes_no_loss_of_any_stage(
    corpus: Path, tmp_path: Path, one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    """One and two model devices differ by rounding: sums over rows are then added in another order."""
    settings = ("--max-steps", "30", "--discriminator-start", "10", "--samples", "0", "--enable-memory-isolation")
    seen = []
    for name, flags in (("one", one), ("two", two)):
        result = run_forked(*arguments(corpus, tmp_path / name, *settings, *flags), **ONE_THREAD)
        assert result.returncode == 0, result.stderr
        steps = [event for event in events(tmp_path / name) if event["event"] == "step"]
        seen.append([(event["stage"], event["step"], event["loss"]) for event in steps])

    assert len(seen[0]) == 90
    assert seen[0] == seen[1]
    window = next(event for event in events(tmp_path / "two") if event["event"] == "window")
    assert window["data_devices"] == ["/CPU:1", "/CPU:2"]
    assert set(window["device_busy"]) == {f"/CPU:{1 + gpu}" for gpu in range(int(two[1]))}
    memory = next(event for event in events(tmp_path / "two") if event["event"] == "memory")
    assert {"data", "data 2", "model"} <= set(memory["devices"])


@pytest.mark.slow
def test_sigterm_saves_and_exits_0_a_second_run_is_refused_and_other_settings_too(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = arguments(corpus, folder, *CODEC)
    process = started([*command, "--max-steps", "100000", "--epochs", "100000"], folder)
    wait_for_step(process, folder, 3)

    second = run_forked(*command)
    assert second.returncode == 1
    assert f"another run (process {process.pid}) is writing" in second.stderr

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    log = log_of(folder).read_text(encoding="utf-8")
    assert "Stopped and saved. To continue, run the same command again." in log
    assert list((folder / "checkpoints" / "codec").glob("step-*"))
    assert (folder / "report.html").is_file()

    other = run_forked(*command, "--seed", "7", "--dvae-width", "64")
    assert other.returncode == 1
    assert "dvae_width: 32 in the run, 64 now" in other.stderr
    assert "seed: 0 in the run, 7 now" in other.stderr

    fresh = run_forked(*command, "--seed", "7", "--fresh", "--max-steps", "2")
    assert fresh.returncode == 0, fresh.stderr
    assert list(folder.glob("earlier-*/checkpoints"))
    assert sorted(losses(folder)) == [1, 2]


@pytest.mark.parametrize("start", [(), ("--fresh",)], ids=["resumed", "fresh"])
def test_a_stage_without_the_one_before_it_is_refused(corpus: Path, tmp_path: Path, start: tuple[str, ...]) -> None:
    result = run_forked(*arguments(corpus, tmp_path / "run", "--stage", "gpt", *start))

    assert result.returncode == 1
    assert "stage gpt needs stage codec" in result.stderr
    assert "--stage codec first" in result.stderr


def require_the_documented_log(log: str) -> None:
    order = ["Configuring Multi-GPU Mode", "completed successfully", "Intelligent GPU Pipeline", "Model will be placed"]
    positions = [log.index(line) for line in [*order, "Waiting up to", "Model training starting now"]]
    assert positions == sorted(positions)


def require_busy_shares_and_a_voice(folder: Path, parts: set[str], devices: set[str]) -> None:
    window = next(event for event in events(folder) if event["event"] == "window" and event["stage"] == "gpt")
    assert set(window["device_busy"]) == devices
    manifest = json.loads((folder / "voice" / "manifest.json").read_text())
    assert set(manifest["metadata"]["parts"]) == parts
    assert not [name for name in manifest["weights"] if name.startswith("discriminators")]


@pytest.mark.slow
def test_all_stages_follow_each_other_on_two_isolated_devices_and_leave_a_voice(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = arguments(corpus, folder, *DUAL, "--enable-memory-isolation", "--max-steps", "3", "--samples", "1")

    evaluated = (
        "--decoder",
        "hifigan",
        "--discriminator-start",
        "2",
        "--decoder-steps",
        "3",
        "--checkpoint-every",
        "1",
    )
    spoken = run_forked(*command, "--alignment-weight", "0", *evaluated)
    assert spoken.returncode == 0, spoken.stderr

    seen = events(folder)
    assert [event["stage"] for event in seen if event["event"] == "stage_done"] == ["codec", "gpt", "decoder"]
    steps = [event for event in seen if event["event"] == "step" and event["stage"] == "decoder"]
    assert ["discriminators" in event for event in steps] == [False, False, True]
    assert spoken.stderr.count("speaks without stage decoder until that has learnt longer") == 1, "at its first step"
    sampled = {event["stage"] for event in seen if event["event"] == "sample"}
    assert "codec" in sampled
    assert "gpt" in sampled or "no sample of gpt" in spoken.stderr, "three steps do not make a speaker"
    require_the_documented_log(spoken.stderr)
    every_part = {"dvae", "conditioning", "gpt", "hifigan", "speaker_encoder"}
    require_busy_shares_and_a_voice(folder, every_part, {"/CPU:1", "/CPU:2"})


@pytest.mark.slow
def test_all_stages_and_the_aligner_run_over_replicas_in_one_command(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    result = run_forked(
        *arguments(
            corpus, folder, *HYBRID, "--max-steps", "3", "--samples", "0", "--ctc-loss-weight", "4", "--deterministic"
        )
    )

    assert result.returncode == 0, result.stderr
    assert "Deterministic operations: the same numbers" in result.stderr
    assert result.stderr.count("Aligner: loss") == 1, "one aligner gives the codec its loss and aligns the clips"
    steps = [event for event in events(folder) if event["event"] == "step" and event["stage"] != "gpt"]
    assert {event["stage"] for event in steps} == {"codec", "decoder"}
    assert all(event["ctc"] > 0 for event in steps)
    assert [event["stage"] for event in events(folder) if event["event"] == "stage_done"] == ["codec", "gpt", "decoder"]
    require_the_documented_log(result.stderr)
    parts = {"dvae", "conditioning", "gpt", "mel_decoder"}
    require_busy_shares_and_a_voice(folder, parts, {"/CPU:1", "/CPU:2", "/CPU:3"})
    postfilter = json.loads((folder / "voice" / "manifest.json").read_text())["metadata"]["postfilter"]
    assert set(postfilter) == {"dvae", "mel_decoder"}, "the last stage keeps what the first one measured"
    assert all(len(gains) == N_MELS and min(gains) >= 1.0 < max(gains) for gains in postfilter.values())
