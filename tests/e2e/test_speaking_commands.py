"""`myxtts synth`, `evaluate` and `demo` as a user types them: wrong ways end early with a cure, without TensorFlow."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.audio.io import write_audio
from myxtts.cli import demo, evaluate
from myxtts.cli.demo_from_scratch import FromScratchOptions, can_speak, claim, train_command
from myxtts.cli.flags import parse_options
from myxtts.cli.main import main
from myxtts.cli.synth import SynthOptions, current_flags, numbered, read_texts, refuse_early
from myxtts.cli.training_process import is_finished
from myxtts.errors import ConfigError, MyXTTSError, OutputError, SynthesisError, UsageError
from tests.corpus_maker import make_ljspeech
from tests.processes import ROOT, myxtts, run_program
from tests.unit.test_initial_voice import write_voice


@pytest.mark.parametrize(
    "arguments",
    [
        ["synth", "--voice", "nowhere"],
        ["synth", "Hello.", "--voice", "nowhere", "--language", "klingon"],
        ["synth", "Hello.", "--voice", "nowhere", "--reference", "no-such-clip.wav"],
        ["synth", "Hello.", "--voice", "nowhere", "--reference", "Makefile"],
        ["synth", "Hello.", "--voice", "nowhere", "--out", "hello.mp4"],
        ["synth", "Hello.", "--voice", "nowhere", "--out", "no/such/folder/a.wav"],
        ["synth", "one", "two", "--voice", "nowhere", "--stream"],
        ["synth", "--text-file", "no-such-file.txt", "--voice", "nowhere"],
        ["synth", "Hello.", "--voice", "nowhere", "--save-voice", "mine.npz"],
        ["synth", "Hello.", "--voice", "nowhere", "--speaker", "anna", "--reference", "Makefile"],
        ["import-xtts", "no-such-folder", "out"],
        ["train", "--train-data", "no-such-corpus"],
        ["train", "--train-data", "docs", "--val-data", "no-such-corpus"],
        ["train", "--train-data", "docs", "--language", "klingon", "--dry-run"],
        ["evaluate", "nowhere", "--data", "no-such-corpus"],
    ],
)
def test_what_is_wrong_is_said_before_tensorflow_is_loaded(arguments: list[str]) -> None:
    run_program("commands", "without_tensorflow", "1", json.dumps(arguments), fresh=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timings": Path("words.txt")}, "suffix '.txt'"),
        ({"save_voice": Path("mine.npz")}, "must end in .safetensors"),
        ({"speed": 9.0}, "--speed is 9.0"),
        ({"seed": 99999999999}, "between 0 and 2147483647"),
        ({"temperature": -1.0}, "--temperature is -1.0"),
        ({"top_p": 2.0}, "--top-p is 2.0"),
        ({"repetition_penalty": 0.5}, "--repetition-penalty is 0.5"),
        ({"guidance": 0.5}, "--guidance is 0.5"),
        ({"simulate_gpus": -1}, "--simulate-gpus is -1"),
        ({"reference": (Path(),)}, "reference . is a folder"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_be_is_refused_before_the_voice_is_opened(options: dict[str, Any], words: str) -> None:
    with pytest.raises(MyXTTSError, match=re.escape(words)):
        refuse_early(SynthOptions(voice=Path("nowhere"), **options), ["Hello.", "Good morning."])


def test_a_flag_of_the_earlier_version_still_works_with_a_note_and_is_not_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["Hello.", "--voice", "nowhere", "--no-guards"]

    assert not parse_options(SynthOptions, current_flags(given), command="synth").hallucination_checks
    assert "--no-guards is called --no-hallucination-checks now" in capsys.readouterr().err
    assert main(["evaluate", "nowhere", "--data", "no-such-corpus", "--guards"]) == 1
    assert "no-such-corpus is not there" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["synth", "--help"])
    shown = capsys.readouterr().out
    assert "--no-hallucination-checks" in shown
    assert "guards" not in shown


def test_texts_of_ones_own_and_all_clips_are_not_asked_for_together() -> None:
    asked = evaluate.EvaluateOptions(voice=Path("nowhere"), data=Path(), texts=Path("mine.txt"), all_clips=True)

    with pytest.raises(UsageError, match="--all-clips and --texts"):
        evaluate.refuse_early(asked)


def test_a_codec_is_evaluated_alone_but_speaks_no_texts(tmp_path: Path) -> None:
    voice = write_voice(tmp_path / "run", ("dvae",))
    (tmp_path / "texts.txt").write_text("one\n", encoding="utf-8")

    assert evaluate.is_codec_alone(voice)
    assert not evaluate.is_codec_alone(write_voice(tmp_path / "whole"))
    with pytest.raises(SynthesisError, match=r"--texts cannot be spoken: the gpt of .*run is not trained yet"):
        evaluate.refuse_early(evaluate.EvaluateOptions(voice=voice, data=Path(), texts=tmp_path / "texts.txt"))


def test_texts_beyond_the_limit_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")

    assert evaluate.texts_to_speak(tmp_path / "texts.txt", 2) == ["one", "two"]
    assert "1 of 3 texts are left out" in capsys.readouterr().err
    assert len(evaluate.texts_to_speak(tmp_path / "texts.txt", 3)) == 3
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "flag", "count"),
    [
        ("a.wav", "out", 1),
        ("a-002.wav", "out", 2),
        ("a.srt", "timings", 1),
        ("report", "report", 1),
        ("v.safetensors", "save_voice", 2),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_spoken(
    tmp_path: Path, name: str, flag: str, count: int
) -> None:
    (tmp_path / name).mkdir()
    given = {flag: tmp_path / name.replace("-002", "")}

    with pytest.raises(SynthesisError, match=f"{name} is a folder"):
        refuse_early(SynthOptions(voice=Path("nowhere"), **given), ["Hello."] * count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "count", "flags"),
    [
        ({"timings": "a.json", "report": "a.json"}, 1, "--timings and --report"),
        ({"timings": "a.json", "report": "x/../a.json"}, 2, "--timings and --report"),
        ({"report": "speech.wav"}, 1, "--out and --report"),
        ({"report": "a.safetensors", "save_voice": "a-001.safetensors"}, 2, "--report and --save-voice"),
    ],
)
def test_two_outputs_of_one_name_are_refused(tmp_path: Path, options: dict[str, str], count: int, flags: str) -> None:
    (tmp_path / "x").mkdir()
    given: Any = {flag: tmp_path / name for flag, name in {"out": "speech.wav", **options}.items()}

    with pytest.raises(SynthesisError, match=f"{flags} would both write"):
        refuse_early(SynthOptions(voice=Path("nowhere"), **given), ["Hello."] * count)


def test_a_stream_is_not_written_to_a_file_too(tmp_path: Path) -> None:
    refuse_early(SynthOptions(voice=Path("nowhere"), stream=True, report=Path("speech.wav")), ["Hello."])

    with pytest.raises(SynthesisError, match=r"--out .*hello\.wav was given too"):
        refuse_early(SynthOptions(voice=Path("nowhere"), stream=True, out=tmp_path / "hello.wav"), ["Hello."])


def test_a_file_name_in_the_place_of_the_text_is_refused() -> None:
    with pytest.raises(SynthesisError, match=r"'hello\.wav' is a file's name") as refused:
        refuse_early(SynthOptions(voice=Path("nowhere")), ["hello.wav"])

    assert "--out hello.wav" in refused.value.hint


def test_a_stream_without_standard_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    with pytest.raises(OutputError, match="closed"):
        refuse_early(SynthOptions(voice=Path("nowhere"), stream=True), ["Hello."])


def test_a_reference_too_short_for_a_voice_is_refused_before_the_voice_is_opened(tmp_path: Path) -> None:
    write_audio(tmp_path / "click.wav", np.full(2000, 0.5, np.float32), 22050)

    with pytest.raises(SynthesisError, match=r"click.wav has 0.09 s of sound, needs at least 0.5 s"):
        refuse_early(SynthOptions(voice=Path("nowhere"), reference=(tmp_path / "click.wav",)), ["Hello."])


def test_an_empty_corpus_is_named_before_tensorflow_is_loaded(tmp_path: Path) -> None:
    voice = write_voice(tmp_path / "voice")
    (tmp_path / "empty").mkdir()
    arguments = ["evaluate", str(voice), "--data", str(tmp_path / "empty"), "--all-clips"]

    run_program("commands", "without_tensorflow", "1", json.dumps(arguments), fresh=True)


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


def test_texts_are_utf_8_with_or_without_a_mark_and_other_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "marked.txt").write_bytes("سلام\r\n".encode("utf-8-sig"))
    (tmp_path / "other.txt").write_bytes("héllo".encode("latin-1"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"h\xe9llo"), encoding="utf-8"))

    assert read_texts((), tmp_path / "marked.txt") == ["سلام"]
    with pytest.raises(SynthesisError, match=r"--texts .*other\.txt is not UTF-8"):
        read_texts((), tmp_path / "other.txt", flag="--texts")
    with pytest.raises(SynthesisError, match="standard input is not UTF-8"):
        read_texts(("-",), None)
    with pytest.raises(SynthesisError, match="text 2 is not UTF-8"):
        read_texts(("fine", os.fsdecode(b"h\xe9llo")), None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n"), encoding="utf-8"))
    with pytest.raises(SynthesisError, match="no text to speak: standard input is empty"):
        read_texts(("-",), None)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SynthesisError, match="standard input is closed"):
        read_texts(("-",), None)


def test_the_demo_trains_with_a_command_that_a_user_could_type(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)
    command = train_command(FromScratchOptions(max_steps=5, folder=tmp_path / "demo"), corpus, Path("r"))

    assert command[:5] == ["train", "--train-data", str(corpus), "--run-dir", "r"]
    shown = myxtts(*command, "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    for line in ("max_steps: 5", "codec_steps: 5", "decoder_steps: 5", "discriminator_start: 5", "concatenation: 0.0"):
        assert f"  {line}\n" in shown.stdout


@pytest.mark.parametrize("minutes", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("options", [FromScratchOptions, demo.DemoOptions])
def test_a_demo_of_no_or_of_endless_minutes_is_refused(options: Any, minutes: float) -> None:
    with pytest.raises(ConfigError, match=f"--minutes is {minutes}"):
        options(minutes=minutes)


def test_a_demo_that_is_terminated_lets_its_training_save_and_fails(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    command = [sys.executable, "-m", "tests.programs", "commands", "demo_that_waits", str(saved)]
    ended = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert ended.stdout is not None
    assert ended.stdout.readline() == b"ready\n"

    ended.send_signal(signal.SIGTERM)
    # Their output is at its end once both are gone.
    said, _ = ended.communicate(timeout=30)

    assert saved.is_file()
    assert ended.returncode == 128 + signal.SIGTERM
    assert b"training saves and stops" in said


def test_a_quick_demo_has_a_folder_of_its_own() -> None:
    assert FromScratchOptions().home != FromScratchOptions(quick=True).home
    assert FromScratchOptions(quick=True, folder=Path("mine")).home == Path("mine")


@pytest.mark.parametrize("other", [{"max_steps": 4}, {"seed": 1}, {"corpus_minutes": 1.5}, {"voices": 2}])
def test_a_demo_of_other_settings_is_neither_continued_nor_scored_as_this_one(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    home = tmp_path / "demo"
    claim(FromScratchOptions(folder=home))
    claim(FromScratchOptions(folder=home, minutes=5.0, sentences=3))

    with pytest.raises(ConfigError, match="holds a demo of other settings") as caught:
        claim(FromScratchOptions(folder=home, **other))
    assert f"remove {home}" in caught.value.hint


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
