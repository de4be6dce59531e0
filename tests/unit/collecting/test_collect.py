"""`myxtts collect` from recordings to a corpus: what is kept, what is set aside and why, bad input, going on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.cli.collect import main
from myxtts.collecting.recognisers import find_recogniser
from myxtts.data.corpora import list_corpus
from myxtts.errors import (
    ConfigError,
    DataError,
    MetricError,
    MissingDependencyError,
    OutputError,
    UsageError,
    how_to_install,
)
from tests.processes import ROOT
from tests.recording_maker import RATE, recording

PLUG_IN = ("--recogniser", "tests.programs.hearing:slow_recogniser")


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MYXTTS_TEST_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def write(path: Path, samples: np.ndarray) -> Path:
    soundfile.write(path, samples, RATE)
    return path


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    return write(tmp_path / "anna.wav", recording([2, 3, 4], [1, 1, 1, 1]))


def collected(*recordings: Path, out: Path, flags: tuple[str, ...] = PLUG_IN) -> list[list[str]]:
    assert main([*map(str, recordings), "--out", str(out), *flags]) == 0
    return [line.split("|") for line in (out / "metadata.csv").read_text(encoding="utf-8").splitlines()]


def set_aside(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "set_aside.jsonl").read_text(encoding="utf-8").splitlines()]


def test_recordings_become_a_corpus_that_training_reads(anna: Path, tmp_path: Path) -> None:
    tom = write(tmp_path / "tom.flac", recording([2], [1, 1]))

    rows = collected(anna, tom, out=tmp_path / "out")

    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("anna_00001", "anna", "en"),
        ("anna_00002", "anna", "en"),
        ("anna_00003", "anna", "en"),
        ("tom_00001", "tom", "en"),
    ]
    listing = list_corpus(tmp_path / "out", language="en")
    assert [entry.text for entry in listing.entries][3] == "alpha bravo charlie delta echo"
    assert listing.refusals == []


def test_doubtful_pieces_are_set_aside_with_their_reason(tmp_path: Path) -> None:
    clipped = np.clip(recording([2], [1, 1], level=3.0), -1, 1)
    quiet = recording([2], [1, 1], level=0.003, noise=0.00001)
    hissing = recording([2], [1, 1], noise=0.0225)  # white noise 12 dB below the speech
    humming = recording([2], [1, 1])
    humming += 0.05 * np.sin(2 * np.pi * 50 * np.arange(len(humming)) / RATE)  # the hum of the mains
    endless = recording([15], [2, 2])
    sounds = {"clipped": clipped, "quiet": quiet, "humming": humming, "hissing": hissing, "endless": endless}
    out = tmp_path / "out"

    rows = collected(*(write(tmp_path / f"{name}.wav", sound) for name, sound in sounds.items()), out=out)

    assert rows == []
    reasons = {str(row["recording"]): str(row["reason"]).partition(":")[0] for row in set_aside(out)}
    assert reasons == {
        "clipped": "clipped",
        "quiet": "too quiet",
        "humming": "noisy",
        "hissing": "noisy",
        "endless": "too long",
    }


def test_with_a_script_pieces_have_its_words(tmp_path: Path) -> None:
    anna = write(tmp_path / "anna.wav", recording([2], [1, 1]))
    tom = write(tmp_path / "tom.wav", recording([5], [1, 1]))
    script = tmp_path / "script.txt"
    script.write_text("Alpha, Bravo, Charlie, Delta; Echo!\nSomething else entirely, never read.")

    rows = collected(anna, tom, out=tmp_path / "out", flags=(*PLUG_IN, "--script", str(script)))

    assert [row[1] for row in rows] == ["Alpha, Bravo, Charlie, Delta; Echo!"]
    assert {str(row["reason"]).partition(":")[0] for row in set_aside(tmp_path / "out")} == {"not the script"}


def test_a_script_in_letters_of_another_language_names_the_flag(anna: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("سلام، دوست من.", encoding="utf-8")

    with pytest.raises(DataError, match="in arabic letters, which 'en' is not written in") as refused:
        collected(anna, out=tmp_path / "out", flags=("--script", str(script)))

    assert "--language" in refused.value.hint
    assert not (tmp_path / "out").exists()


def test_what_comes_next_is_training_only_where_something_was_kept(
    anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collected(anna, out=tmp_path / "out")
    assert f"myxtts train --train-data {tmp_path / 'out'} --init-from base" in capsys.readouterr().out

    collected(write(tmp_path / "quiet.wav", recording([2], [1, 1], level=0.003, noise=0.00001)), out=tmp_path / "none")
    said = capsys.readouterr().out
    assert "nothing was kept" in said
    assert "myxtts train" not in said


def test_a_second_call_keeps_corrections_and_adds_recordings(anna: Path, tmp_path: Path, calls: Path) -> None:
    out = tmp_path / "out"
    collected(anna, out=out)
    metadata = (out / "metadata.csv").read_text()
    (out / "metadata.csv").write_text(metadata.replace("alpha", "Corrected", 1))

    rows = collected(anna, write(tmp_path / "tom.wav", recording([2], [1, 1])), out=out)

    assert rows[0][1].startswith("Corrected")
    assert len(rows) == 4
    assert calls.read_text().count("call") == 4


def test_a_killed_call_goes_on(tmp_path: Path, calls: Path) -> None:
    long = write(tmp_path / "long.wav", recording([1.5] * 60, [0.6] * 61))
    wanted = collected(long, out=tmp_path / "whole")
    calls.unlink()
    out = tmp_path / "out"
    command = [sys.executable, "-m", "myxtts", "collect", str(long), "--out", str(out), *PLUG_IN, "--workers", "2"]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while not calls.exists() or calls.read_text().count("call") < 10:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "metadata.csv").exists()

    rows = collected(long, out=out)

    assert rows == wanted
    assert calls.read_text().count("call") <= 60 + 4  # those that were under way are heard again


def test_a_recording_that_cannot_be_used_does_not_stop_the_others(
    anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")

    assert len(collected(bad, anna, out=tmp_path / "out")) == 3
    assert "left out:" in capsys.readouterr().out


def test_bad_input_is_one_clear_error(anna: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    silent = write(tmp_path / "silent.wav", np.zeros(RATE * 3))
    (tmp_path / "other").mkdir()
    twin = write(tmp_path / "other" / "anna.wav", np.zeros(RATE))

    for error, problem, arguments in (
        (OutputError, "was not made by collect", [anna, "--out", full, *PLUG_IN]),
        (DataError, "has no speech", [silent, "--out", out, *PLUG_IN]),
        (DataError, "there is no recording", [tmp_path / "none.wav", "--out", out, *PLUG_IN]),
        (UsageError, "have one name", [anna, twin, "--out", out, *PLUG_IN]),
        (DataError, "--script", [anna, "--out", out, "--script", tmp_path / "none.txt", *PLUG_IN]),
        (ConfigError, "recognises en, not 'fa'", [anna, "--out", out, "--language", "fa"]),
        (ConfigError, "--recogniser no.such:thing", [anna, "--out", out, "--recogniser", "no.such:thing"]),
        (UsageError, "has no {wav}", [anna, "--out", out, "--recogniser-command", "echo"]),
        (UsageError, "no program", [anna, "--out", out, "--recogniser-command", "no-such-program {wav}"]),
        (UsageError, "names no model", [anna, "--out", out, "--recogniser", "faster-whisper"]),
        (UsageError, "--shortest", [anna, "--out", out, "--shortest", "9", "--longest", "5", *PLUG_IN]),
    ):
        with pytest.raises(error) as raised:
            main([str(argument) for argument in arguments])
        assert problem in raised.value.problem


def test_other_settings_for_a_finished_recording_are_refused(anna: Path, tmp_path: Path) -> None:
    collected(anna, out=tmp_path / "out")

    with pytest.raises(OutputError, match="changed: speaker"):
        collected(anna, out=tmp_path / "out", flags=(*PLUG_IN, "--speaker", "eve"))


def test_without_a_recogniser_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    for name, hint in (
        ("moonshine", re.escape(how_to_install("eval")) + ".*--script"),
        ("faster-whisper:MODEL", "pip install .*faster-whisper"),
    ):
        with pytest.raises(MissingDependencyError, match=hint):
            find_recogniser(name, None, "en")


def test_a_command_hears_without_a_shell(anna: Path, tmp_path: Path) -> None:
    rows = collected(anna, out=tmp_path / "out", flags=("--recogniser-command", "echo 'hello; world $HOME' {wav}"))

    assert rows[0][1].startswith("hello; world $HOME ")


def test_a_command_that_fails_on_the_first_pieces_ends_the_call(anna: Path, tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="exit code 1"):
        collected(anna, out=tmp_path / "out", flags=("--recogniser-command", "false {wav}"))
