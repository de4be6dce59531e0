"""Commands as a user types them: help, dry runs, and every wrong way with its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpus_maker import make_ljspeech
from tests.processes import myxtts, run, run_program


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["validate", "--help"], ["doctor"]])
def test_help_and_doctor_import_no_tensorflow(arguments: list[str]) -> None:
    run_program("commands", "without_tensorflow", "0", json.dumps(arguments), fresh=True)


def test_a_dry_run_imports_no_tensorflow_before_or_after_the_plan() -> None:
    arguments = ["train", "--dry-run", "--simulate-gpus", "2"]
    run_program("commands", "without_tensorflow", "0", json.dumps(arguments), fresh=True)


def test_the_documented_flags_are_all_there() -> None:
    documented = """--train-data --val-data --batch-size --epochs --data-gpu --model-gpu --buffer-size
    --model-start-delay --enable-memory-isolation --data-gpu-memory --model-gpu-memory --grad-accum --mixed-precision
    --optimization-level
    --num-workers --config --multi-gpu --visible-gpus --checkpoint-dir --fresh --model-size --run-dir --stage
    --max-steps --seed --log-every --simulate-gpus --dry-run --debug"""

    shown = myxtts("train", "--help").stdout

    assert [flag for flag in documented.split() if flag not in shown] == []


def test_a_dry_run_shows_roles_hidden_gpus_and_the_chosen_settings() -> None:
    result = run(
        "train_main.py",
        "--dry-run",
        "--data-gpu",
        "3",
        "--model-gpu",
        "1",
        "--simulate-gpus",
        "4",
        "--buffer-size",
        "25",
    )

    assert result.returncode == 0
    assert "data on /GPU:1 (simulated by /CPU:2)" in result.stdout
    assert "model on /GPU:0 (simulated by /CPU:1)" in result.stdout
    assert "hidden: GPU 0, GPU 2" in result.stdout
    assert "buffer_size: 25" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("--data-gpu 5 --model-gpu 1 --simulate-gpus 2", 1, "--data-gpu is 5, must be 0-1"),
        ("--data-gpu -1 --model-gpu 1 --simulate-gpus 2", 1, "--data-gpu is '-1'"),
        ("--data-gpu 1 --model-gpu 1 --simulate-gpus 2", 1, "both 1"),
        ("--data-gpu 1 --simulate-gpus 2", 1, "without --model-gpu"),
        ("--data-gpu 0 --model-gpu 1", 1, "found 0 GPUs"),
        ("--data-gpu 0 --model-gpu 1 --simulate-gpus 1", 1, "found 1 simulated GPU"),
        ("--visible-gpus 0,x", 1, "--visible-gpus is '0,x'"),
        ("--data-gpu 0 --model-gpu 1 --visible-gpus 1,2 --simulate-gpus 3", 1, "hides that GPU"),
        ("--mixed-precision", 1, "mixed precision is not possible on a CPU"),
        ("--buffer-size 0", 1, "--buffer-size is 0"),
        ("--model-start-delay -1", 1, "--model-start-delay is -1"),
        ("--enable-memory-isolation --data-gpu 0 --model-gpu 1 --data-gpu-memory 100 --simulate-gpus 2", 1, "256"),
        ("--bufer-size 3", 2, "--buffer-size"),
        ("--buffer-size many", 2, "--buffer-size"),
        ("--model-gpu 1,x --data-gpu 0", 1, "--model-gpu is '1,x'"),
        ("--train-data docs --val-data no-such-corpus", 1, "--val-data no-such-corpus is not there"),
    ],
)
def test_bad_input_gets_one_clear_error_and_its_exit_code(arguments: str, code: int, text: str) -> None:
    result = run("train_main.py", "--dry-run", *arguments.split())

    assert result.returncode == code
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback() -> None:
    result = run("train_main.py", "--dry-run", "--buffer-size", "0", "--debug")

    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_bad_yaml_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("bufer_size: 3", encoding="utf-8")

    result = run("train_main.py", "--dry-run", "--config", str(path))

    assert (result.returncode, "did you mean buffer_size" in result.stderr) == (1, True)


def test_training_without_data_says_how_to_get_some() -> None:
    result = run("train_main.py")

    assert result.returncode == 1
    assert "myxtts demo-corpus" in result.stderr


def test_a_misspelt_command_is_corrected() -> None:
    result = myxtts("trian")

    assert result.returncode == 2
    assert "did you mean train?" in result.stderr


def test_an_ascii_terminal_does_not_kill_persian_text(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "صدای من", 3)

    result = myxtts("train", "--dry-run", "--train-data", str(corpus), PYTHONIOENCODING="ascii", LC_ALL="C")

    assert result.returncode == 0
    assert "train_data" in result.stdout


def test_without_tensorflow_the_error_names_the_extra() -> None:
    result = run("-m", "tests.programs", "commands", "where_tensorflow_is_missing", "validate", "--simulate-gpus", "2")

    assert "pip install -c constraints.txt '.[cpu]'" in result.stdout + result.stderr


def test_a_process_that_reads_says_nothing_of_its_own(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "voices", 12)

    result = run("-m", "tests.programs.reading_in_a_process", str(corpus), str(tmp_path / "cache"))

    assert result.returncode == 0, result.stderr
    assert "absl" not in result.stderr
