"""A script aligned by sound: pieces that espeak-ng speaks, and the built-in voice's aligner that hears them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.cli.collect import main
from myxtts.collecting.sounds import SoundAligner
from myxtts.data.espeak import ESPEAK_SAMPLE_RATE, EspeakVoice, speak
from myxtts.errors import ConfigError

ENGLISH = [
    "The old house stood empty for 5 years.",
    "Nobody in the village knew why.",
    "In spring, a young family moved in with their dogs.",
    "They painted the walls and mended the roof.",
    "And every evening there was music.",
]
PERSIAN = ["سلام، دوست خوب من.", "هوا امروز خیلی خوب است.", "فردا به مدرسه می‌رویم."]


def read_aloud(path: Path, sentences: Sequence[str], language: str) -> Path:
    """The sentences as a recording with pauses of a second."""
    voice = EspeakVoice(name="a", variant="")
    pause = np.zeros(ESPEAK_SAMPLE_RATE, np.float32)
    parts = [part for text in sentences for part in (pause, speak(text, voice, language) / 32768)]
    samples = np.concatenate([*parts, pause])
    samples += 1e-4 * np.random.default_rng(0).standard_normal(len(samples))
    soundfile.write(path, samples, ESPEAK_SAMPLE_RATE)
    return path


def collected(tmp_path: Path, read: Sequence[str], script: str, language: str = "en") -> tuple[list[str], list[str]]:
    """Texts of the kept pieces, and reasons of the others, by the command itself without a recogniser."""
    recording = read_aloud(tmp_path / "read.wav", read, language)
    (tmp_path / "script.txt").write_text(script, encoding="utf-8")
    out = tmp_path / "out"
    flags = ("--out", str(out), "--script", str(tmp_path / "script.txt"), "--language", language)
    assert main([str(recording), *flags]) == 0
    kept = [line.split("|")[1] for line in (out / "metadata.csv").read_text(encoding="utf-8").splitlines()]
    aside = [json.loads(line) for line in (out / "set_aside.jsonl").read_text(encoding="utf-8").splitlines()]
    return kept, [str(line["reason"]) for line in aside]


@pytest.mark.parametrize(("sentences", "language"), [(ENGLISH, "en"), (PERSIAN, "fa")])
def test_every_piece_gets_the_scripts_own_words(sentences: list[str], language: str, tmp_path: Path) -> None:
    kept, aside = collected(tmp_path, sentences, "\n".join(sentences), language)

    assert kept == sentences
    assert aside == []


def test_a_recording_is_found_within_a_longer_script(tmp_path: Path) -> None:
    script = " ".join(["Once upon a time there was a mountain.", *ENGLISH, "Here the story ends, and another begins."])

    assert collected(tmp_path, ENGLISH[1:4], script)[0] == ENGLISH[1:4]


def test_a_sentence_that_was_not_read_belongs_to_no_piece(tmp_path: Path) -> None:
    assert collected(tmp_path, [*ENGLISH[:2], *ENGLISH[3:]], " ".join(ENGLISH))[0] == [*ENGLISH[:2], *ENGLISH[3:]]


def test_what_is_not_in_the_script_is_set_aside_and_takes_no_words(tmp_path: Path) -> None:
    aside_remark = "Excuse me, could you please close that window over there?"

    kept, aside = collected(tmp_path, [*ENGLISH[:2], aside_remark, *ENGLISH[2:]], " ".join(ENGLISH))

    assert kept == ENGLISH
    assert [reason.partition(":")[0] for reason in aside] == ["not the script"]


def test_a_script_in_another_language_is_refused_before_anything_is_cut(tmp_path: Path) -> None:
    recording = read_aloud(tmp_path / "read.wav", ENGLISH[:1], "en")
    (tmp_path / "script.txt").write_text("…!", encoding="utf-8")

    with pytest.raises(ConfigError, match="cannot follow this script"):
        main([str(recording), "--out", str(tmp_path / "out"), "--script", str(tmp_path / "script.txt")])

    assert not (tmp_path / "out").exists()


def test_a_clip_that_says_nothing_has_words_of_no_script() -> None:
    aligner = SoundAligner.built_in()
    noise = 0.01 * np.random.default_rng(0).standard_normal(22050).astype(np.float32)

    (match,) = aligner.match([aligner.posteriors(noise)], " ".join(ENGLISH), "en")

    assert match.problem is not None
