"""The voice that comes with the package, as a newcomer meets it: by name, or by no name at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from myxtts import open_voice
from myxtts.audio.io import read_audio
from myxtts.cli.main import main
from myxtts.monitoring.events import EventLog
from myxtts.synthesis.voice import find_voice
from tests.corpus_maker import make_ljspeech
from tests.processes import myxtts, run


@pytest.mark.parametrize("text", ["Hello there, my friend.", "سلام، دوست من."])
def test_it_speaks_without_a_voice_or_a_language_being_named(tmp_path: Path, text: str) -> None:
    spoken = myxtts("synth", text, "--out", str(tmp_path / "hello.wav"))

    assert spoken.returncode == 0, spoken.stderr
    assert spoken.stderr == ""
    wave = read_audio(tmp_path / "hello.wav")
    assert 0.5 < len(wave) / 22050 < 5
    assert np.abs(wave).max() > 0.05


def test_a_text_is_in_the_language_of_its_letters_unless_another_is_named() -> None:
    voice = open_voice("base")

    persian = voice.speak("سلام، دوست من.", candidates=1)
    np.testing.assert_array_equal(persian.wave, voice.speak("سلام، دوست من.", language="fa", candidates=1).wave)
    assert persian.report.language_note is None
    assert "--language" in str(voice.speak("سلام، دوست من.", language="en", candidates=1).report.language_note)
    assert {word.source for word in persian.words} == {"aligner"}


def test_it_needs_no_tensorflow(tmp_path: Path) -> None:
    command = ("where_tensorflow_is_missing", "synth", "Hello.", "--out", str(tmp_path / "hello.wav"))

    spoken = run("-m", "tests.programs", "commands", *command)

    assert spoken.returncode == 0, spoken.stderr
    assert len(read_audio(tmp_path / "hello.wav")) > 0.2 * 22050


def test_its_speakers_are_listed_and_one_is_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 30, "28 speakers, their count, and how to hear one"
    assert listed[28].endswith("each speaks every language of the voice: en, de, fa")
    assert main(["voices", "--sample", "bf_emma", "--out", str(tmp_path / "emma.wav")]) == 0
    assert len(read_audio(tmp_path / "emma.wav")) > 22050


def test_an_unknown_speaker_is_told_where_all_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "Hello.", "--speaker", "bob", "--out", str(tmp_path / "hello.wav")]) == 1

    assert "and 8 more, which myxtts voices lists" in capsys.readouterr().err


def test_threads_may_share_it() -> None:
    voice = open_voice("base")
    texts = ["Hello there, my friend.", "It rains.", "Who opened the door?", "They painted the walls of the house."]
    alone = [voice.speak(text, candidates=2).wave for text in texts]

    with ThreadPoolExecutor(len(texts)) as threads:
        together = list(threads.map(lambda text: voice.speak(text, candidates=2).wave, texts))

    for one, same in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, same)


def test_a_run_that_has_not_come_to_its_end_speaks_and_says_where_it_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "voice").symlink_to(find_voice("base"))
    with EventLog(tmp_path / "events.jsonl") as events:
        events.write("step", stage="gpt", step=11, loss=4.0)
        open_voice(tmp_path)
        assert "how it speaks at step 11 of stage gpt" in caplog.text

        caplog.clear()
        events.write("run_end", reason="finished", message="")
        open_voice(tmp_path)
        assert caplog.text == ""


def test_a_folder_of_its_name_goes_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = find_voice("base")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").symlink_to(built_in)

    assert find_voice("base") == Path("base")


def test_a_fine_tuning_from_it_runs_both_stages(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)

    shown = myxtts("train", "--train-data", str(corpus), "--init-from", "base", "--dry-run")

    assert shown.returncode == 0, shown.stderr
    assert "init_from: base" in shown.stdout
    assert "normalise_loudness: true" in shown.stdout


def test_a_fine_tuned_voice_has_the_aligner_that_its_decoder_learnt_from(tmp_path: Path) -> None:
    corpus, run_dir = make_ljspeech(tmp_path / "corpus", 6), tmp_path / "run"

    trained = myxtts(
        *("train", "--train-data", str(corpus), "--init-from", "base", "--stage", "gpt", "--max-steps", "2"),
        *("--samples", "0", "--run-dir", str(run_dir), "--cache-dir", str(tmp_path / "cache")),
    )

    assert trained.returncode == 0, trained.stderr
    [learnt] = (tmp_path / "cache").glob("*/alignment-*.network.npz")
    assert (run_dir / "voice" / "aligner.npz").read_bytes() == learnt.read_bytes()
    first = np.load(run_dir / "initial_aligner.npz")
    built_in = np.load(find_voice("base") / "aligner.npz")
    assert all((first[name] == built_in[name]).all() for name in built_in.files), "a resumed run starts from the same"
