"""What goes wrong while training, injected into real runs: leaks, slow data, too little memory, data that vanish."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import run_forked, run_program
from tests.training_processes import arguments, events, log_of, losses, started, wait_for_step

FAULTY = ("-m", "tests.programs", "faulty_training")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "demo"
    write_demo_corpus(folder, DemoSettings(minutes=0.5), workers=1)
    return folder


def test_a_corpus_of_which_no_clip_fits_the_model_is_refused_with_the_limit(corpus: Path, tmp_path: Path) -> None:
    flags = arguments(corpus, tmp_path / "run", "--stage", "codec", "--max-steps", "1", "--max-text-tokens", "3")

    result = run_forked(*flags)

    assert result.returncode == 1
    assert "error: no clip is left to learn from" in result.stderr
    assert "have more than 3 text tokens (--max-text-tokens)" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_whose_output_nobody_reads_any_more_trains_to_its_end(corpus: Path, tmp_path: Path) -> None:
    """As `myxtts train ... 2>&1 | tee log` whose tee was killed."""
    folder = tmp_path / "run"
    flags = arguments(corpus, folder, "--stage", "codec", "--max-steps", "1", "--samples", "0")[1:]

    result = run_forked(*FAULTY, "with_output_that_nobody_reads", *flags)

    assert result.returncode == 0, events(folder)
    assert [event["reason"] for event in events(folder) if event["event"] == "run_end"] == ["finished"]
    assert list((folder / "checkpoints" / "codec").glob("step-00000001"))
    assert (folder / "report.html").is_file()


@pytest.mark.slow
def test_a_leak_of_1_mb_a_step_and_a_starving_model_device_are_reported_with_rate_and_flag(
    corpus: Path, tmp_path: Path
) -> None:
    flags = arguments(corpus, tmp_path / "run", "--stage", "codec", "--max-steps", "200", "--samples", "0")[1:]
    devices = ("--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1", "--buffer-size", "4")

    result = run_forked(*FAULTY, "with_a_sick_producer", *flags, *devices, "--log-every", "10")

    assert result.returncode == 0, result.stderr
    seen = events(tmp_path / "run")
    leak = next(event for event in seen if event["event"] == "leak")
    assert leak["step"] <= 200
    assert 0.7 < leak["mb_per_step"] < 1.7, "the leak and what the run itself still gathers"
    assert "memory leak: " in result.stderr
    assert "MB per 1,000 steps" in result.stderr
    warnings = [event for event in seen if event["event"] == "warning"]
    starving = next(event for event in warnings if "the data device is the bottleneck" in event["message"])
    assert "waiting for data" in starving["message"]
    assert "--data-gpu" in starving["hint"]


@pytest.mark.slow
def test_a_gpt_that_came_to_ignore_its_references_says_so_where_there_is_more_than_one_voice(tmp_path: Path) -> None:
    def flags(voices: int) -> list[list[str]]:
        write_demo_corpus(tmp_path / f"of-{voices}", DemoSettings(minutes=0.5, voices=voices), workers=1)
        # A few steps at a hundred times the rate do what some hundred do at three times.
        steps = ("--codec-steps", "1", "--gpt-steps", "4", "--learning-rate", "0.1")
        both = (*steps, "--samples", "0", "--alignment-weight", "0", "--val-data", str(tmp_path / "others"))
        whole = arguments(tmp_path / f"of-{voices}", tmp_path / f"run-{voices}", *both)[1:]
        return [[*whole, "--stage", "codec"], [*whole, "--stage", "gpt"]]

    write_demo_corpus(tmp_path / "others", DemoSettings(minutes=0.4, seed=7), workers=1)
    result = run_forked(*FAULTY, "one_after_another", json.dumps(flags(3) + flags(1)))

    assert result.returncode == 0, result.stderr
    seen = {voices: events(tmp_path / f"run-{voices}") for voices in (3, 1)}
    variation = {
        voices: [e["conditioning_variation"] for e in own if "conditioning_variation" in e]
        for voices, own in seen.items()
    }
    assert 0 < variation[3][-1] < 0.05
    assert 0 < variation[1][-1] < 0.05
    warnings = {voices: [e["message"] for e in own if e["event"] == "warning"] for voices, own in seen.items()}
    assert warnings == {3: ["the conditioning has collapsed: every reference gives the same voice"], 1: []}
    assert "start over with --fresh and a lower --learning-rate" in result.stderr


@pytest.mark.slow
def test_out_of_memory_names_the_device_the_batch_the_limit_and_how_much_was_asked() -> None:
    said = json.loads(run_program("out_of_memory").splitlines()[-1])

    for role, device, limit in (("data", "/GPU:0", 4096), ("model", "/GPU:1", 8192)):
        problem, hint = said[role]
        assert f"{role} device {device}" in problem
        assert "65,536.0 GB were asked" in problem
        assert "a batch of 8 clips" in problem
        assert f"--{role}-gpu-memory {limit}" in problem
        assert "--batch-size" in hint
        assert f"raise --{role}-gpu-memory" in hint
    problem, hint = said["cudnn"]
    assert "model device /GPU:1" in problem
    assert "a library beside TensorFlow got none (CUDNN_STATUS_ALLOC_FAILED) on a batch of 8 clips" in problem
    assert "lower --model-gpu-memory" in hint, "the library allocates outside of the limit"


@pytest.mark.slow
def test_shards_that_vanish_while_training_lose_no_step_and_are_built_again(corpus: Path, tmp_path: Path) -> None:
    """An open file stays readable when it is removed; the next start of the run finds it missing."""
    own, folder = tmp_path / "demo", tmp_path / "run"
    shutil.copytree(corpus, own)
    command = arguments(own, folder, "--stage", "codec", "--samples", "0", "--epochs", "100000")
    process = started([*command, "--max-steps", "100000"], folder)
    wait_for_step(process, folder, 20)

    for shard in (tmp_path / "cache").rglob("*.array_record"):
        shard.unlink()
    wait_for_step(process, folder, max(losses(folder)) + 40)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0, log_of(folder).read_text(encoding="utf-8")
    reached = max(losses(folder))
    again = run_forked(*command, "--max-steps", str(reached + 2))

    assert again.returncode == 0, again.stderr
    assert "it is built again" in again.stderr
    assert f"continues at step {reached}" in again.stderr


@pytest.mark.slow
def test_what_was_learnt_before_the_data_failed_is_saved_and_goes_on_with_more_clips_where_its_checkpoints_are(
    corpus: Path, tmp_path: Path
) -> None:
    own, folder = tmp_path / "demo", tmp_path / "run"
    shutil.copytree(corpus, own)
    command = arguments(own, folder, "--stage", "codec", "--samples", "0")

    failed = run_forked(*FAULTY, "with_a_producer_that_fails", *command[1:], "--max-steps", "500")

    assert failed.returncode == 1
    assert "error: the disk is gone" in failed.stderr
    reached = max(losses(folder))
    assert [path.name for path in (folder / "checkpoints" / "codec").glob("step-*")] == [f"step-{reached:08d}"]

    elsewhere = run_forked(*command, "--max-steps", str(reached + 1), "--checkpoint-dir", str(tmp_path / "other"))
    assert elsewhere.returncode == 1
    assert f"was trained to step {reached} of stage codec, and there is no checkpoint in" in elsewhere.stderr

    metadata = own / "metadata.csv"
    first, *_ = metadata.read_text(encoding="utf-8").splitlines()
    name, text = first.split("|", 1)
    for copy in range(4):
        shutil.copy(own / "wavs" / f"{name}.wav", own / "wavs" / f"copy{copy}.wav")
        with metadata.open("a", encoding="utf-8") as file:
            file.write(f"copy{copy}|{text}\n")
    again = run_forked(*command, "--max-steps", str(reached + 1))

    assert again.returncode == 0, again.stderr
    assert f"continues at step {reached} of {reached + 1}" in again.stderr
    assert "reading goes on with the start of epoch" in again.stderr
