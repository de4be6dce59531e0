"""The five-part check as a user types it."""

from __future__ import annotations

from tests.processes import run, run_forked, run_program


def test_five_parts_pass_on_simulated_gpus_and_each_says_what_it_measured() -> None:
    result = run_forked("validate_dual_gpu_pipeline.py", "--data-gpu", "0", "--model-gpu", "1", "--simulate-gpus", "2")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "All 5 parts passed." in result.stdout
    assert result.stdout.endswith(
        "CPU devices stood for the GPUs: no real GPU was checked.\n"
        "Next: python train_main.py --train-data MY_FOLDER --data-gpu 0 --model-gpu 1 --simulate-gpus 2 "
        "--model-size tiny\n"
    )
    stages = ("codec", "gpt", "decoder")
    for number, measured in enumerate(
        (
            ["2 simulated GPUs"],
            ["read from its tensor"],
            [f"{stage}: model created on /GPU:1" for stage in stages],
            ["equal bit for bit"],
            [f"{stage}: {found}" for stage in stages for found in ("loss ", "busy shares: /CPU:1")],
        ),
        start=1,
    ):
        part = result.stdout.split(f"\n{number}. ")[1].split(f"\n{number + 1}. ")[0]
        assert all(words in part for words in measured), part


def test_a_stage_that_does_not_learn_fails_the_check_by_its_name() -> None:
    output = run_program("commands", "a_stage_of_one_step")

    assert "   ok    codec: loss" in output
    assert "   FAIL  stage gpt: the loss did not fall" in output
    assert "decoder: loss" not in output
    assert "Part 4 of 4 failed." in output


def test_without_gpus_it_exits_1_with_the_cause_and_the_way_to_try_it() -> None:
    result = run("validate_dual_gpu_pipeline.py", "--data-gpu", "0", "--model-gpu", "1")

    assert result.returncode == 1
    assert "needs at least 2 GPUs, found 0 GPUs" in result.stdout
    assert "--simulate-gpus 2" in result.stdout
    assert "Part 1 of 5 failed." in result.stdout


def test_an_error_of_tensorflow_fails_its_part_in_one_line() -> None:
    output = run_program("commands", "a_transfer_that_is_too_large")

    failed = output.split("\n3. third...\n")[1].splitlines()
    assert failed[0].startswith("   FAIL  TensorFlow: ")
    assert "OOM" in failed[0]
    assert "myxtts doctor" in failed[1]
    assert "Part 3 of 3 failed." in output
    assert output.endswith("exit code 1\n")
