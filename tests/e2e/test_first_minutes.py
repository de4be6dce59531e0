"""What a newcomer meets first: help, completion, Ctrl-C, terminals without colours or without Persian letters."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from myxtts.cli.commands import COMMANDS
from myxtts.cli.main import main, overview
from tests.processes import ROOT, myxtts, run, run_program

ESCAPE = "\x1b"
PROGRAM = ("-m", "tests.programs", "commands")


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_without_arguments_it_shows_every_command_and_the_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    shown = capsys.readouterr().out
    assert shown.strip() == overview()
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []
    assert "myxtts demo" in shown
    assert "myxtts train --train-data" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_has_an_example_on_a_line_of_its_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = help_of(command, capsys).splitlines()

    below = lines[next(number for number, line in enumerate(lines) if line.startswith("Example")) + 1 :]
    assert f"myxtts {command}" in below[0]


def test_no_help_and_no_completion_imports_tensorflow() -> None:
    commands = [*([name, "--help"] for name in COMMANDS), ["completion", "bash"]]
    run_program("commands", "without_tensorflow", "0", *map(json.dumps, commands), fresh=True)


def completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("myxtts tr", ["train"]),
        ("myxtts train --model-si", ["--model-size"]),
        ("myxtts train --stage co", ["codec"]),
        ("myxtts train --lea", ["--learning-rate"]),  # its help has two lines
        ("myxtts monitor run", []),  # left to bash, which knows the files
    ],
)
def test_bash_completes_commands_flags_and_values(
    typed: str, offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = completion_script("bash", capsys)
    words = typed.split()
    complete = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _tyro_myxtts; declare -p COMPREPLY"

    result = subprocess.run(
        ["bash", "-c", f"{script}\n{complete}"], capture_output=True, text=True, check=True, timeout=60
    )

    assert re.findall(r'\[\d+\]="([^"]*)"', result.stdout) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_that_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = completion_script(shell, capsys)

    assert [name for name, what in COMMANDS.items() if f"'{name}': {{'description': '{what}'" not in script] == []
    assert "--train-data" in script


def test_zsh_is_asked_for_the_word_under_the_cursor_and_falls_back_to_files(capsys: pytest.CaptureFixture[str]) -> None:
    """zsh counts from 1 and the script from 0: without this no value is completed."""
    script = completion_script("zsh", capsys)

    assert '"$((CURRENT - 1))"' in script
    assert "|| _files" in script


def test_training_without_tensorflow_names_the_extra() -> None:
    result = run(*PROGRAM, "where_tensorflow_is_missing", "train", "--train-data", "docs")

    assert result.returncode == 1
    assert "pip install -c constraints.txt '.[cpu]'" in result.stderr
    assert "Size normal is made for GPUs and there is none: --model-size tiny" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("program", [["train_main.py"], ["validate_dual_gpu_pipeline.py"], ["-m", "myxtts", "synth"]])
def test_outside_of_the_environment_one_line_says_how_to_enter_it(program: list[str]) -> None:
    result = run("-S", *program, PYTHONPATH="")  # without -S Python would find our packages

    assert result.returncode == 1
    problem, hint = result.stderr.splitlines()
    assert re.fullmatch(r"error: this Python has no \w+: MyXTTS is not installed in it", problem)
    assert "source .venv/bin/activate" in hint
    assert "make setup" in hint


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--train-data", "docs", "--init-from", "base"],
        ["prepare", "docs"],
        ["evaluate", "base", "--data", "docs"],
        ["export", "base", "OUT"],
        ["export", "base", "OUT", "--format", "litert"],
    ],
    ids=" ".join,
)
def test_where_only_speaking_is_installed_other_commands_name_the_extra(command: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"

    result = run(
        *PROGRAM, "where_only_speaking_is_installed", *[str(out) if word == "OUT" else word for word in command]
    )

    assert result.returncode == 1
    assert re.search(
        r"^error: this needs (tensorflow|array_record), which is not installed$", result.stderr, re.MULTILINE
    )
    assert "pip install -c constraints.txt '.[cpu]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_where_only_speaking_is_installed_the_first_steps_speak() -> None:
    result = run(*PROGRAM, "where_only_speaking_is_installed")

    first = result.stdout.partition("First steps:")[2]
    assert "myxtts synth" in first
    assert "myxtts train" not in first
    assert "myxtts demo" not in first


def interrupted_after(line: str, *arguments: str) -> tuple[int, str]:
    """Start Python, send it Ctrl-C once it has printed `line`, and give back how it ended."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().decode().strip() == line
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    try:
        _, written = process.communicate(timeout=60)
    finally:
        process.kill()  # one that did not end
    return process.returncode, written.decode()


def test_ctrl_c_ends_a_command_with_one_line() -> None:
    # `-` waits for a text on standard input.
    code, written = interrupted_after("ready", *PROGRAM, "waiting", "synth", "-", "--voice", "runs/none")

    # Python ends itself with the signal where the interrupt fell into an exec of its own; a shell sees 130 then too.
    assert code in (130, -signal.SIGINT)
    assert written == "interrupted\n"


def test_ctrl_c_ends_a_computation_that_does_not_return() -> None:
    assert interrupted_after("ready", *PROGRAM, "computing") == (130, "interrupted\n")


def in_a_terminal(*arguments: str, **environment: str) -> str:
    """Run Python with a terminal as its output, and give back everything that was written to it."""
    ours, theirs = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    written = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        pass  # Linux ends a terminal whose other side is gone with an error
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_colours_are_for_terminals_that_want_them() -> None:
    help_of_validate = ("-m", "myxtts", "validate", "--help")

    assert ESCAPE in in_a_terminal(*help_of_validate)
    assert ESCAPE not in in_a_terminal(*help_of_validate, NO_COLOR="1")
    assert ESCAPE not in run(*help_of_validate).stdout


def test_persian_text_is_shown_where_it_can_be_and_escaped_where_it_cannot() -> None:
    asked = ("train", "--dry-run", "--run-dir", "صدای من")

    assert "run_dir: صدای من" in myxtts(*asked, PYTHONIOENCODING="utf-8").stdout
    assert r"run_dir: \u0635\u062f\u0627\u06cc \u0645\u0646" in myxtts(*asked, PYTHONIOENCODING="ascii").stdout


def test_the_log_takes_persian_text_on_any_terminal() -> None:
    assert run(*PROGRAM, "logging_persian", PYTHONIOENCODING="utf-8").stderr.endswith("سلام · dual\n")
    assert run(*PROGRAM, "logging_persian", PYTHONIOENCODING="ascii").stderr.endswith(
        "\\u0633\\u0644\\u0627\\u0645 - dual\n"
    )


def test_a_line_reaches_a_pipe_when_it_is_said() -> None:
    with subprocess.Popen([sys.executable, *PROGRAM, "saying_a_line"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()

    assert line == b"said\n"
