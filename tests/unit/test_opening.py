"""Opening a voice, the options of speaking, and a synthesizer that runs without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from myxtts import open_voice
from myxtts.config.speaking import Sampling
from myxtts.errors import CheckpointError, ConfigError, DataError, SynthesisError
from myxtts.synthesis.options import SpeakingKeywords, SpeakingOptions
from myxtts.synthesis.speech import Speech, SpeechReport
from tests.processes import run_program
from tests.unit.test_initial_voice import write_voice


def test_without_a_name_the_built_in_voice_is_opened() -> None:
    assert "af_heart" in open_voice().voice.speakers


def test_a_name_that_is_no_voice_lists_the_voices_that_are_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    write_voice(tmp_path / "runs" / "mine" / "voice")
    write_voice(tmp_path / "exported")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CheckpointError, match="there is no voice 'bass'") as caught:
        open_voice("bass")
    assert caught.value.hint == "name a run folder or a voice folder; there are: exported, runs/mine, base"
    with pytest.raises(CheckpointError, match="there is no voice 'runs/mien'") as caught:
        open_voice("runs/mien")
    assert caught.value.hint.endswith("there are: runs/mine, base")
    with pytest.raises(CheckpointError, match="empty holds no voice"):
        open_voice("empty")


def test_of_many_voices_a_few_are_listed(tmp_path: Path) -> None:
    for number in range(10):
        write_voice(tmp_path / f"voice-{number}")

    with pytest.raises(CheckpointError) as caught:
        open_voice(tmp_path / "voice")
    assert caught.value.hint.endswith("voice-7 and 3 more")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"speed": 9.0}, ConfigError, "--speed"),
        ({"seed": -1}, ConfigError, "--seed"),
        ({"language": "klingon"}, ConfigError, "klingon"),
        ({"sampling_changes": {"temperature": -1.0}}, ConfigError, "--temperature"),
        ({"reference": "a.wav", "speaker": "anna"}, SynthesisError, "both a reference and speaker"),
        ({"reference": np.zeros(3), "speaker": "anna"}, SynthesisError, "both a reference and speaker"),
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_made(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SpeakingOptions(**options)


def test_changes_of_the_sampling_are_made_to_the_voices_own_way_or_to_the_one_given() -> None:
    own = Sampling(temperature=0.75, repetition_penalty=5.0)
    changes = {"temperature": 0.3}

    assert SpeakingOptions().sampling_over(own) == own
    assert SpeakingOptions(sampling_changes=changes).sampling_over(own) == dataclasses.replace(own, temperature=0.3)
    given = SpeakingOptions(sampling=Sampling(top_k=7), sampling_changes=changes)
    assert given.sampling_over(own) == Sampling(top_k=7, temperature=0.3)


def test_every_option_is_a_keyword_of_speak() -> None:
    fields = {field.name for field in dataclasses.fields(SpeakingOptions)}

    assert set(SpeakingKeywords.__annotations__) == fields


def test_speech_is_saved_by_the_suffix(tmp_path: Path) -> None:
    wave = np.linspace(-0.5, 0.5, 2400, dtype=np.float32)
    speech = Speech(wave, 24000, (), SpeechReport())

    speech.save(tmp_path / "hello.wav")
    speech.save(str(tmp_path / "hello.flac"))

    for name in ("hello.wav", "hello.flac"):
        samples, rate = soundfile.read(tmp_path / name)
        assert rate == 24000
        np.testing.assert_allclose(samples, wave, atol=1 / 32768)
    with pytest.raises(DataError, match=r"\.mp4"):
        speech.save(tmp_path / "hello.mp4")


def test_importing_the_package_imports_nothing_heavy() -> None:
    seen = json.loads(run_program("light_import", fresh=True))

    assert seen == {"heavy": [], "open_voices": False}


def test_a_synthesizer_speaks_with_a_runtime_that_is_not_tensorflow() -> None:
    run_program("another_runtime", fresh=True)
