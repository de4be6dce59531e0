"""The life of a run: what a stage leaves to the next, what a kill or a full disk costs, and which way back is shut."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from myxtts.data.prepare import prepare
from tests.corpus_maker import make_ljspeech, settings
from tests.processes import run_program
from tests.training_processes import arguments, events, log_of, started


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("life")
    corpus = make_ljspeech(folder / "corpus", 10)
    found: dict[str, Any] = json.loads(
        run_program("run_life", str(corpus), str(folder), few_steps=True).splitlines()[-1]
    )
    return found


def test_a_stage_with_averages_leaves_those_to_the_next_one(said: dict[str, Any]) -> None:
    assert said["averages_differ"]
    assert said["left_what_the_voice_has"]


def test_validation_evaluates_the_weights_that_the_voice_gets(said: dict[str, Any]) -> None:
    assert said["evaluated"] == pytest.approx(said["the_voices_loss"], rel=1e-6)


def test_a_finished_run_whose_voice_was_not_written_writes_it(said: dict[str, Any]) -> None:
    assert "published_late" not in said
    assert said["published_late_whole"]
    assert said["trained_to"] == ["codec", 3]


@pytest.mark.parametrize(("name", "what"), [("config", "config.yaml"), ("voice", "voice")])
def test_a_full_disk_ends_a_run_with_what_it_could_not_write(said: dict[str, Any], name: str, what: str) -> None:
    problem, hint = said[f"{name}_on_full_disk"]
    assert f"{what} cannot be written" in problem
    assert "No space left" in problem
    assert "free disk space" in hint
    assert "after_full_disk" not in said


def test_a_codec_that_a_gpt_has_learnt_from_does_not_train_on(said: dict[str, Any]) -> None:
    problem, hint = said["earlier_stage"]
    assert "stage codec is at step 3 of 5, and stage gpt has learnt from it" in problem
    assert "--stage gpt" in hint
    assert said["earlier_stage_left"]


@pytest.mark.parametrize("weights_from", ["gpt_checkpoint", "gpt_in_voice"])
def test_text_weights_are_not_read_with_another_vocabulary(said: dict[str, Any], weights_from: str) -> None:
    problem, hint = said[weights_from]
    assert "was trained with another vocabulary than this corpus gives" in problem
    assert "--init-from" in hint


def test_sigterm_while_the_corpus_is_prepared_ends_the_run_at_once(tmp_path: Path) -> None:
    corpus, folder = make_ljspeech(tmp_path / "corpus", 2), tmp_path / "run"
    prepared, begun = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        begun.set()
        prepared.wait()

    other = threading.Thread(target=prepare, args=(corpus, settings(tmp_path / "cache"), hold), kwargs={"workers": 1})
    other.start()
    try:
        assert begun.wait(60)
        process = started(arguments(corpus, folder, "--text-frontend", "characters"), folder)
        while "another process is preparing" not in log_of(folder).read_text(encoding="utf-8"):
            assert process.poll() is None, log_of(folder).read_text(encoding="utf-8")
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=60) == 0
        assert events(folder)[-1]["reason"] == "interrupted"
        assert "run the same command again" in log_of(folder).read_text(encoding="utf-8")
    finally:
        prepared.set()
        other.join()


def test_a_run_that_is_validated_with_its_own_folder_holds_out_clips_of_it(said: dict[str, Any]) -> None:
    learnt, held_out = said["learnt_and_held_out"]

    assert len(held_out) == 1
    assert sorted(learnt + held_out) == list(range(10))
    assert said["val_data"] is None, "later commands must know that clips were held out"


def test_a_voice_knows_which_clips_it_was_trained_on(said: dict[str, Any]) -> None:
    assert said["trained_on"] == [said["clip_list"]]
