"""`myxtts synth`, `evaluate` and `demo` as a user types them: wrong ways end early with a cure, without TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myxtts.cli.demo import DemoOptions, can_speak, is_finished, train_command
from myxtts.cli.synth import numbered, read_texts
from myxtts.errors import ConfigError, SynthesisError
from tests.processes import myxtts, run_script

WRONG_WITHOUT_TENSORFLOW = """
import sys
from myxtts.cli.main import main
code = main({arguments})
assert code == 1, code
heavy = {{"tensorflow", "keras", "torch"}} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["synth", "--voice", "nowhere"],
        ["synth", "Hello.", "--voice", "nowhere", "--language", "klingon"],
        ["synth", "Hello.", "--voice", "nowhere", "--reference", "no-such-clip.wav"],
        ["synth", "Hello.", "--voice", "nowhere", "--out", "hello.mp4"],
        ["synth", "Hello.", "--voice", "nowhere", "--out", "no/such/folder/a.wav"],
        ["synth", "one", "two", "--voice", "nowhere", "--stream"],
        ["synth", "--text-file", "no-such-file.txt", "--voice", "nowhere"],
    ],
)
def test_what_is_wrong_is_said_before_tensorflow_is_loaded(arguments: list[str]) -> None:
    run_script(WRONG_WITHOUT_TENSORFLOW.format(arguments=arguments), fresh=True)


def test_a_voice_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = myxtts("synth", "Hello.", "--voice", str(tmp_path / "nowhere"), "--out", str(tmp_path / "a.wav"))

    assert result.returncode == 1
    assert "nowhere does not exist" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["synth", "evaluate", "demo"])
def test_commands_explain_themselves(command: str) -> None:
    result = myxtts(command, "--help")

    assert result.returncode == 0
    assert f"myxtts {command}" in result.stdout


def test_several_texts_get_numbered_files() -> None:
    assert numbered(Path("out/a.wav"), 1, 1) == Path("out/a.wav")
    assert numbered(Path("out/a.wav"), 3, 12) == Path("out/a-003.wav")


def test_texts_come_from_the_command_line_and_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("one\n\n  \nدو\n", encoding="utf-8")

    assert read_texts(("zero",), tmp_path / "texts.txt") == ["zero", "one", "دو"]
    with pytest.raises(SynthesisError, match="no text"):
        read_texts(("  ",), None)


def test_the_demo_trains_with_a_command_that_a_user_could_type() -> None:
    command = train_command(DemoOptions(max_steps=5), Path("c"), Path("r"))

    assert command[:5] == ["train", "--train-data", "c", "--run-dir", "r"]
    assert command[-2:] == ["--max-steps", "5"]
    assert myxtts(*command, "--dry-run").returncode == 0
    with pytest.raises(ConfigError, match="--minutes"):
        DemoOptions(minutes=0.0)


def test_a_demo_is_finished_when_its_last_run_is(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"

    assert not is_finished(tmp_path)
    log.write_text(json.dumps({"event": "run_end", "time": 1.0, "reason": "interrupted", "message": ""}) + "\n")
    assert not is_finished(tmp_path)
    with log.open("a") as file:
        file.write(json.dumps({"event": "run_end", "time": 2.0, "reason": "finished", "message": ""}) + "\n")
    assert is_finished(tmp_path)


def test_a_demo_can_speak_once_its_voice_has_a_gpt(tmp_path: Path) -> None:
    (tmp_path / "voice").mkdir()
    manifest = {"version": 1, "sha256": "", "weights": {}, "metadata": {"parts": ["dvae"]}}

    assert not can_speak(tmp_path)
    (tmp_path / "voice" / "manifest.json").write_text(json.dumps(manifest))
    assert not can_speak(tmp_path)
    manifest["metadata"] = {"parts": ["dvae", "conditioning", "gpt"]}
    (tmp_path / "voice" / "manifest.json").write_text(json.dumps(manifest))
    assert can_speak(tmp_path)
