"""Flags of `train`: which are public, and what becomes of those of 0.1 that are YAML settings now."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from myxtts.cli.hidden_flags import split_hidden
from myxtts.cli.main import main
from myxtts.config.config import SECTIONS
from myxtts.config.earlier import NO_LONGER_FLAGS
from myxtts.config.public import FLAGS, flag
from myxtts.errors import ConfigError, UsageError

CONTRACT = """--train-data --val-data --batch-size --epochs --data-gpu --model-gpu --buffer-size --model-start-delay
--enable-memory-isolation --data-gpu-memory --model-gpu-memory --grad-accum --mixed-precision --optimization-level
--num-workers --config --multi-gpu --visible-gpus --checkpoint-dir --fresh --model-size --run-dir --stage --max-steps
--seed --log-every --simulate-gpus --dry-run --debug"""
OURS = """--init-from --init-parts --extra-tokens --language --corpus-format --text-frontend --cache-dir --batch-seconds
--learning-rate --samples --deterministic --cluster --data-workers --model-workers --max-restarts --elastic"""
SETTINGS = {item.name for section in SECTIONS.values() for item in dataclasses.fields(section)}
NEVER_FLAGS = {
    "beta_1",
    "beta_2",
    "weight_decay",
    "warmup_steps",
    "ema",
    "clip_norm",
    "final_learning_rate_share",
    "tf32",
    "voice_width",
    "mel_frame_blocks",
    "pitch_predictor",
}


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["train", "--dry-run", "--model-size", "tiny", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_help_shows_the_public_flags_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])

    shown = set(re.findall(r"^. (--[a-z][a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    assert shown == {*CONTRACT.split(), *OURS.split()}


def test_completion_offers_no_hidden_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0

    train = capsys.readouterr().out.split("'train': {")[1]
    offered = set(re.findall(r"'(--[a-z][a-z-]+)'", train.split("'subcommands'")[0]))
    assert {"--max-steps", "--train-data"} <= offered
    assert offered & {flag(name) for name in NO_LONGER_FLAGS} == set()


def test_every_flag_of_the_earlier_version_is_still_taken() -> None:
    assert SETTINGS - set(FLAGS) - set(NO_LONGER_FLAGS) == NEVER_FLAGS
    assert set(FLAGS) <= SETTINGS


def test_a_hidden_flag_works_and_is_warned_about_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, said = dry_run(capsys, "--gpt-layers", "3", "--trim_silence", "--jit-compile", "--dropout=0.2")

    assert code == 0
    for line in ("gpt_layers: 3", "trim_silence: true", "jit_compile: true", "dropout: 0.2"):
        assert f"  {line}\n" in shown
    (warning,) = said.splitlines()
    assert warning.endswith("--config: gpt_layers: 3, trim_silence: true, jit_compile: true, dropout: 0.2")


def test_a_flag_that_has_another_name_now_keeps_its_old_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, said = dry_run(capsys, "--code-noise", "0", "--vary-speed", "0.1", "--code-levels", "1")

    assert code == 0
    assert "token_corruption: 0.0\n" in shown
    assert "speed_perturbation: 0.1" in said


def test_a_hidden_flag_wins_over_yaml_and_over_the_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("gpt_layers: 7\ngpt_width: 64\n", encoding="utf-8")

    _, shown, _ = dry_run(capsys, "--config", str(path), "--gpt-layers", "3")

    assert "gpt_layers: 3\n" in shown
    assert "gpt_width: 64\n" in shown


def test_public_flags_are_not_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(capsys, "--batch-size", "3", "--learning-rate", "1e-3")[2] == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--gpt-layers"], "--gpt-layers has no value"),
        (["--beta-1", "0.9"], "--beta-1 is not a flag: beta_1 is a setting of a YAML file"),
        (["--weight_decay=0"], "--weight-decay is not a flag"),
    ],
)
def test_a_flag_without_its_value_and_a_setting_that_never_was_a_flag_are_wrong_usage(
    words: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as caught:
        split_hidden(words)

    assert "--config" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--gpt-layers", "many"], "setting gpt_layers is 'many' (str), must be a whole number"),
        (["--gpt-layers", "[1"], "setting gpt_layers is '[1' (str)"),
        (["--gpt-layers", "2026-99-99"], "setting gpt_layers is '2026-99-99' (str)"),
        (["--code-levels", "6"], "setting code_levels is 6, and this version reads 1 only"),
    ],
)
def test_a_hidden_flag_with_a_wrong_value_names_the_setting(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        split_hidden(words)


def test_none_is_none_and_other_words_are_left_alone() -> None:
    rest, settings = split_hidden(["--run-dir", "keep", "--cpu-threads", "None", "-", "--max-steps", "3"])

    assert rest == ["--run-dir", "keep", "-", "--max-steps", "3"]
    assert settings == {"cpu_threads": None}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--lr=1e-4", "--learning-rate"),
        ("--fp16", "--mixed-precision"),
        ("--gpus", "--visible-gpus"),
        ("--resume", "the same command again"),
        ("--output", "--run-dir"),
    ],
)
def test_a_flag_by_another_trainers_name_is_answered_with_ours(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_hidden(["--train-data", "x", typed])

    assert f"did you mean {meant}" in caught.value.hint
