"""What a voice is evaluated with: no clip that it was trained on, and no clip compared with itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.cli.evaluate import note_of_left_out, prepared_for
from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.data.prepare import prepare
from myxtts.errors import DataError, MetricError, OutputError, SynthesisError
from myxtts.evaluation.evaluate import Item
from myxtts.evaluation.items import holds_all_out, refuse_other_clips
from myxtts.evaluation.metrics import Metrics
from myxtts.evaluation.run import evaluate_into
from myxtts.models.weights import save_arrays
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.voice import CONFIG_FILE
from tests.corpus_maker import make_ljspeech, settings


def test_a_run_with_a_validation_folder_is_evaluated_with_all_of_that_folder(tmp_path: Path) -> None:
    config = DataConfig(train_data=str(tmp_path / "train"), val_data=str(tmp_path / "x" / ".." / "val"))

    assert holds_all_out(config, tmp_path / "val")
    assert not holds_all_out(DataConfig(train_data=str(tmp_path / "val")), tmp_path / "val")


def test_a_folder_that_was_trained_on_whole_is_refused_and_the_other_one_is_named(tmp_path: Path) -> None:
    train, val = str(tmp_path / "train"), str(tmp_path / "val")

    with pytest.raises(DataError, match="trained on every clip") as caught:
        holds_all_out(DataConfig(train_data=train, val_data=val), tmp_path / "train")
    assert f"--data {val}" in caught.value.hint
    with pytest.raises(DataError, match="trained on every clip") as caught:
        holds_all_out(DataConfig(train_data=train, val_data=train), tmp_path / "train")
    assert "--data" not in caught.value.hint


def test_a_folder_that_the_run_does_not_know_is_taken_only_with_all_clips(tmp_path: Path) -> None:
    config = DataConfig(train_data=str(tmp_path / "train"), val_data=str(tmp_path / "val"))

    with pytest.raises(DataError, match="held out no clip") as caught:
        holds_all_out(config, tmp_path / "moved")
    assert "--all-clips" in caught.value.hint


def test_an_exported_voice_that_was_trained_on_all_of_its_folder_is_evaluated_only_with_all_clips_of_another(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="exported from a run with --val-data") as caught:
        holds_all_out(DataConfig(), tmp_path / "mine", trained_on_all=True)
    assert "--all-clips" in caught.value.hint
    assert not holds_all_out(DataConfig(), tmp_path / "mine")


class Mute:
    """A voice that cannot speak: only real clips are evaluated."""

    codec = None

    def speak(self, text: str, options: SpeakingOptions) -> Any:
        raise SynthesisError("it is mute", hint="train it")


class FirstSample:
    """The vector of a clip is its first sample: clips with another one have nothing in common."""

    name = "first sample"

    def embed(self, wave: np.ndarray, sample_rate: int) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[round(float(wave[0]) * 4)]


def test_a_place_that_cannot_be_written_is_named_before_anything_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match=r"file/below cannot be written: Not a directory"):
        evaluate_into(tmp_path / "file" / "below", "A test", Mute(), Metrics(), [], {})


def test_a_clip_is_never_compared_with_itself(tmp_path: Path) -> None:
    first, second, third = (np.full(400, number / 4, np.float32) for number in range(3))
    items = [
        Item(id="a", text="one", language="en", speaker="anna", reference=second, real=first),
        Item(id="b", text="two", language="en", speaker="anna", reference=first, real=second),
        Item(id="c", text="three", language="en", speaker="omid", reference=third, real=third),
    ]

    result = evaluate_into(tmp_path, "A test", Mute(), Metrics(speaker=FirstSample()), items, {})

    rows = json.loads(result.json.read_text(encoding="utf-8"))["utterances"]
    evaluated = {row["item"]: (row["similarity"], row["right_speaker"]) for row in rows if row["system"] == "real clip"}
    assert evaluated == {"a": (0.0, False), "b": (0.0, False), "c": (None, None)}


def two_clips_each(*speakers: str) -> list[Item]:
    """Of each speaker two items that differ in their clips, so that each has a reference that is not its own."""
    clips = iter([np.full(400, number / 4, np.float32) for number in range(2 * len(speakers))])
    pairs = [(speaker, next(clips), next(clips)) for speaker in speakers]
    return [
        Item(id=f"{speaker}-{number}", text="one", language="en", speaker=speaker, reference=reference, real=real)
        for speaker, first, second in pairs
        for number, (real, reference) in enumerate([(first, second), (second, first)])
    ]


@pytest.mark.parametrize(("speakers", "share"), [(("anna", "omid"), 0.0), (("anna",), None)])
def test_silence_is_not_the_right_voice_where_there_are_two(
    speakers: tuple[str, ...], share: float | None, tmp_path: Path
) -> None:
    items = two_clips_each(*speakers)

    result = evaluate_into(tmp_path, "A test", Mute(), Metrics(speaker=FirstSample()), items, {})

    speech = result.summaries[0]
    assert (speech.system, speech.right_speaker, speech.failures) == ("speech", share, len(items))
    assert (speech.similarity, speech.evaluated) == (None, {})


class EnglishPhones:
    """Recognises no phone, in one language."""

    name = "English phones"
    languages = frozenset({"en"})

    def recognise(self, waves: Sequence[np.ndarray]) -> list[list[str]]:
        return [[] for _ in waves]


def test_phones_of_a_language_that_the_recogniser_was_not_trained_on_are_not_counted(tmp_path: Path) -> None:
    clip = np.zeros(400, np.float32)
    items = [
        Item(id=language, text=text, language=language, speaker="anna", reference=clip, real=clip)
        for language, text in (("en", "one"), ("de", "eins"))
    ]

    result = evaluate_into(tmp_path, "A test", Mute(), Metrics(phones=EnglishPhones()), items, {})

    rows = json.loads(result.json.read_text(encoding="utf-8"))["utterances"]
    counted = {(row["item"], row["system"]): row["phones"] is not None for row in rows}
    assert counted == {
        ("en", "speech"): True, ("en", "real clip"): True, ("de", "speech"): False, ("de", "real clip"): False,
    }  # fmt: skip
    assert [line.evaluated for line in result.summaries] == [{"phone_error": 1}, {"phone_error": 1}]
    assert "100.0 % (1)" in result.table


class Moody:
    """A recogniser that fails on the sounds whose numbers it was given."""

    name = "moody"
    languages = frozenset({"en"})

    def __init__(self, fails_on: set[int]) -> None:
        self._fails_on, self._asked = fails_on, 0

    def transcribe(self, wave: np.ndarray, sample_rate: int) -> Any:
        self._asked += 1
        if self._asked in self._fails_on:
            raise ZeroDivisionError("first line\nthe ear is full")
        return "one"


def test_a_metric_that_fails_on_a_sound_costs_that_score_and_is_named(tmp_path: Path) -> None:
    items = two_clips_each("anna", "omid")

    result = evaluate_into(tmp_path, "A test", Mute(), Metrics(recogniser=Moody({1, 2, 4})), items, {})

    rows = [row for row in json.loads(result.json.read_text(encoding="utf-8"))["utterances"] if row["path"]]
    assert [row["metric_errors"] for row in rows] == [
        {"moody": "ZeroDivisionError: the ear is full"}, {"moody": "ZeroDivisionError: the ear is full"}, {},
        {"moody": "ZeroDivisionError: the ear is full"},
    ]  # fmt: skip
    real = result.summaries[1]
    assert (real.word_error, real.evaluated) == (0.0, {"word_error": 1, "character_error": 1})
    assert any("moody failed on 3 sounds, first on anna-0 (real clip)" in note for note in result.notes)
    assert "the ear is full" in result.page.read_text(encoding="utf-8")


def test_a_metric_that_fails_on_all_first_sounds_ends_the_evaluation_with_its_way_out(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match=r"moody failed on each of the first 3 sounds.*the ear is full") as caught:
        evaluate_into(
            tmp_path, "A test", Mute(), Metrics(recogniser=Moody({1, 2, 3})), two_clips_each("anna", "omid"), {}
        )

    assert "--asr none" in caught.value.hint


def test_an_answer_that_is_no_text_is_the_recognisers_error(tmp_path: Path) -> None:
    class Wordless(Moody):
        def transcribe(self, wave: np.ndarray, sample_rate: int) -> Any:
            return None

    result = evaluate_into(tmp_path, "A test", Mute(), Metrics(recogniser=Wordless(set())), two_clips_each("anna"), {})

    assert any("it answered None, which is no text" in note for note in result.notes)


def test_what_was_evaluated_before_an_interruption_stays_and_says_that_it_is_not_all(tmp_path: Path) -> None:
    class Interrupted(Mute):
        def speak(self, text: str, options: SpeakingOptions) -> Any:
            if text == "stop":
                raise KeyboardInterrupt
            return super().speak(text, options)

    clip = np.zeros(400, np.float32)
    items = [
        Item(id=text, text=text, language="en", speaker="anna", reference=clip, real=clip) for text in ("one", "stop")
    ]

    with pytest.raises(KeyboardInterrupt):
        evaluate_into(tmp_path, "A test", Interrupted(), Metrics(), items, {})

    content = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert (content["texts"], content["texts_evaluated"]) == (2, 1)
    assert {row["item"] for row in content["utterances"]} == {"one"}
    assert "1 of 2 texts were evaluated" in (tmp_path / "evaluation.html").read_text(encoding="utf-8")


def test_held_out_clips_of_a_folder_that_has_changed_since_are_refused(tmp_path: Path) -> None:
    config = DataConfig(train_data=str(tmp_path / "mine"))

    with pytest.raises(DataError, match="other clips than when the voice was trained") as caught:
        refuse_other_clips(config, tmp_path / "x" / ".." / "mine", trained_on=["a"], now="b")
    assert "--all-clips" in caught.value.hint
    with pytest.raises(DataError, match="other clips than when the voice was trained"):
        refuse_other_clips(config, tmp_path / "mine", trained_on=["b", "a"], now="a")  # It changed on the way.
    refuse_other_clips(config, tmp_path / "mine", trained_on=["a"], now="a")
    refuse_other_clips(config, tmp_path / "elsewhere", trained_on=["a"], now="b")


def test_an_exported_voice_is_evaluated_with_held_out_clips_only_of_its_training_corpus(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=r"whether the voice was trained on .* is not known"):
        refuse_other_clips(DataConfig(), tmp_path / "any", trained_on=["a"], now="b")
    refuse_other_clips(DataConfig(), tmp_path / "any", trained_on=["a"], now="a")


@pytest.mark.parametrize(("trained_on", "now"), [([], "b"), (["a"], None)])
def test_where_nothing_is_known_of_the_training_clips_nothing_is_refused(
    trained_on: list[str], now: str | None, tmp_path: Path
) -> None:
    for config in (DataConfig(), DataConfig(train_data=str(tmp_path))):
        refuse_other_clips(config, tmp_path, trained_on=trained_on, now=now)


def test_a_voice_is_not_evaluated_with_held_out_clips_once_its_folder_has_lost_one(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)
    data = settings(tmp_path / "cache", train_data=str(corpus))
    learnt = prepare(corpus, data, workers=1)
    (tmp_path / "run" / "voice").mkdir(parents=True)
    XTTSConfig(data=data).to_yaml(tmp_path / "run" / "voice" / CONFIG_FILE)
    save_arrays(tmp_path / "run" / "voice", {}, VoiceManifest(trained_on=(str(learnt.clip_list),)).to_metadata())
    assert len(prepared_for(tmp_path / "run", corpus, held_out=True)) == 3

    lines = (corpus / "metadata.csv").read_text().splitlines(keepends=True)
    (corpus / "metadata.csv").write_text("".join(lines[1:]))

    with pytest.raises(DataError, match="other clips than when the voice was trained"):
        prepared_for(tmp_path / "run", corpus, held_out=True)
    assert len(prepared_for(tmp_path / "run", corpus, held_out=False)) == 2


def test_clips_that_are_left_out_are_named_with_the_flag_that_takes_them() -> None:
    note = note_of_left_out(1, 30, 40)

    assert note is not None
    assert "1 of 30 clips" in note
    assert "--all-clips" in note
    assert note_of_left_out(30, 30, 40) is None
    assert note_of_left_out(40, 1000, 40) is None
