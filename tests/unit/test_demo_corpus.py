"""The demo corpus: the same bytes every time, everything there, nothing held out in it, and safe to interrupt."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from myxtts.audio.io import read_audio
from myxtts.data.demo_corpus import VOICES, DemoSettings, plan_corpus, write_demo_corpus
from myxtts.data.demo_texts import common_words, draw_text, heldout_texts, is_held_out
from myxtts.data.espeak import EspeakVoice, speak
from myxtts.errors import ConfigError, DataError, OutputError
from myxtts.text.normalise import normalise
from myxtts.text.phonemes import phonemes
from tests.limits import no_file_larger_than

SMALL = DemoSettings(minutes=2.5)


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_corpus(tmp_path_factory.mktemp("demo") / "corpus", SMALL, workers=2)


def rows(folder: Path) -> list[list[str]]:
    return [line.split("|") for line in (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()]


def test_every_line_has_its_clip_transcript_speaker_and_language(corpus: Path) -> None:
    lines = rows(corpus)

    assert len(lines) == len(plan_corpus(SMALL)) == len(list((corpus / "wavs").iterdir()))
    for name, text, normalised, _speaker, language in lines:
        assert normalise(text, language) == normalised
        wave = read_audio(corpus / "wavs" / f"{name}.wav")
        assert np.abs(wave).max() > 0.05
        assert 0.4 < len(wave) / 22050 < 20


def test_phonemes_are_those_of_the_transcripts(corpus: Path) -> None:
    spoken = dict(line.split("|") for line in (corpus / "phonemes.csv").read_text(encoding="utf-8").splitlines())

    for name, _text, normalised, _speaker, language in rows(corpus)[:20]:
        assert spoken[name] == phonemes(normalised, language)


def test_the_corpus_is_about_as_long_as_was_asked_and_shared_by_turns(corpus: Path) -> None:
    seconds: dict[tuple[str, str], float] = {}
    for name, _text, _normalised, speaker, language in rows(corpus):
        length = len(read_audio(corpus / "wavs" / f"{name}.wav")) / 22050
        seconds[speaker, language] = seconds.get((speaker, language), 0.0) + length

    assert set(seconds) == {(voice.name, language) for voice in VOICES[:3] for language in ("en", "fa")}
    assert sum(seconds.values()) == pytest.approx(150, rel=0.15)
    of_language = {language: [seconds[key] for key in seconds if key[1] == language] for language in ("en", "fa")}
    assert sum(of_language["en"]) > 1.2 * sum(of_language["fa"])
    for shares in of_language.values():
        assert min(shares) > 0.6 * max(shares)


def test_another_number_of_workers_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    again = write_demo_corpus(tmp_path / "again", SMALL, workers=1)

    assert digest(again) == digest(corpus)


def test_an_interrupted_corpus_is_finished_to_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop_early(done: int, _total: int) -> None:
        if done >= 5:
            raise StopError

    with pytest.raises(StopError):
        write_demo_corpus(tmp_path / "again", SMALL, workers=1, progress=stop_early)
    assert not (tmp_path / "again" / "metadata.csv").exists()
    assert len(list((tmp_path / "again" / "wavs").iterdir())) == 5

    calls: list[tuple[int, int]] = []
    write_demo_corpus(tmp_path / "again", SMALL, progress=lambda done, total: calls.append((done, total)))

    assert digest(tmp_path / "again") == digest(corpus)
    assert calls[0][0] == 5
    assert calls[-1] == (len(rows(corpus)), len(rows(corpus)))


def test_a_finished_corpus_is_left_alone(corpus: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in corpus.rglob("*")}

    write_demo_corpus(corpus, SMALL, progress=lambda *_: pytest.fail("nothing is left to say"))

    assert {path: path.stat().st_mtime_ns for path in corpus.rglob("*")} == before


def test_a_folder_with_something_else_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(DataError, match="not empty"):
        write_demo_corpus(tmp_path, SMALL)
    with pytest.raises(DataError, match="other settings"):
        write_demo_corpus(corpus, DemoSettings(minutes=2.5, seed=7))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_takes_no_corpus_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match="file/demo cannot be written: Not a directory"):
        write_demo_corpus(tmp_path / "file" / "demo", SMALL)
    with pytest.raises(OutputError, match="demo cannot be written: File too large"), no_file_larger_than(0):
        write_demo_corpus(tmp_path / "demo", SMALL)
    assert list((tmp_path / "demo").iterdir()) == []


@pytest.mark.parametrize("name", ["phonemes.csv", "metadata.csv"])
def test_a_disk_that_is_full_after_the_last_clip_is_named(tmp_path: Path, name: str) -> None:
    def fill(done: int, total: int) -> None:
        if done == total:
            (tmp_path / f".{name}.{os.getpid()}.part").symlink_to("/dev/full")

    with pytest.raises(OutputError, match=f"{tmp_path} cannot be written: No space left"):
        write_demo_corpus(tmp_path, DemoSettings(minutes=0.05), progress=fill)


@pytest.mark.parametrize("workers", [0, -1])
def test_a_number_of_workers_that_cannot_be_is_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match=f"--workers is {workers}, must be at least 1"):
        write_demo_corpus(tmp_path, SMALL, workers=workers)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_hour_contains_no_held_out_text(seed: int) -> None:
    clips = plan_corpus(DemoSettings(minutes=60, seed=seed))

    assert not [clip.normalised for clip in clips if is_held_out(clip.normalised, clip.language)]
    assert {clip.kind for clip in clips} == {"digits", "sentence", "words"}
    assert len({(clip.speaker, clip.normalised) for clip in clips}) == len(clips) > 1000


def test_held_out_texts_are_many_and_would_be_found() -> None:
    assert len(set(heldout_texts("en"))) >= 60
    assert len(set(heldout_texts("fa"))) >= 30
    for language in ("en", "fa"):
        assert len(set(heldout_texts(language, "digits"))) >= 20
        for text in (*heldout_texts(language), *heldout_texts(language, "digits")):
            assert is_held_out(normalise(text, language), language)
            assert is_held_out(normalise(f"Oh, {text}", language), language)


def test_no_drawn_text_breaks_the_metadata_file() -> None:
    rng = random.Random(3)

    for language in ("en", "fa"):
        for _ in range(300):
            _kind, text = draw_text(rng, language)
            assert not set(text) & set('|\n\r"{}')
            assert normalise(text, language)


def test_common_words_are_many_and_fit_for_company() -> None:
    assert len(common_words("en")) > 1500
    assert len(common_words("fa")) > 1000
    assert not {"fuck", "kill"} & set(common_words("en"))


def test_voices_differ_in_sound_not_only_in_name() -> None:
    def spectrum(voice: EspeakVoice) -> np.ndarray:
        wave = speak("the quick brown fox jumps over the lazy dog", voice, "en-us").astype(np.float64)
        power = np.abs(np.fft.rfft(wave[: 2 * 22050])) ** 2
        bands = np.log([part.sum() for part in np.array_split(power[:10000], 40)])
        return bands - bands.mean()

    bands = [spectrum(voice) for voice in VOICES]
    for first in range(len(bands)):
        for second in range(first):
            assert np.abs(bands[first] - bands[second]).mean() > 0.5


def test_what_was_said_before_changes_nothing() -> None:
    alone = speak("hello there", VOICES[1], "en-us")
    speak("something else altogether, and longer", VOICES[0], "en-us")

    assert np.array_equal(speak("hello there", VOICES[1], "en-us"), alone)


def test_a_voice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match="nobody"):
        speak("hello", EspeakVoice(name="x", variant="nobody"), "xx")


@pytest.mark.parametrize(
    "wrong", [{"minutes": 0}, {"voices": 0}, {"voices": 7}, {"languages": ("de",)}, {"languages": ()}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        DemoSettings(**wrong)  # type: ignore[arg-type]


def test_ctrl_c_while_espeak_speaks_is_not_lost() -> None:
    """espeak calls back into Python, where ctypes would swallow the interrupt."""
    before = signal.getsignal(signal.SIGINT)
    ctrl_c = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])

    def interrupted() -> None:
        ctrl_c.start()
        speak("one two three four five six seven eight nine ten. " * 60, VOICES[0], "en")
        ctrl_c.join()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert signal.getsignal(signal.SIGINT) is before
