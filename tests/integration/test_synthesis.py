"""A voice of random weights speaks: awkward texts end, seeds repeat, streams and files agree, errors are clear."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from myxtts.audio.io import read_audio, write_audio
from myxtts.cli.synth import SynthOptions, speak_all
from myxtts.config.speaking import GUIDANCE, Sampling
from myxtts.errors import ConfigError, OutputError, SynthesisError
from myxtts.models.gpt import GPT
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.speech import SpeechReport, pcm16
from myxtts.synthesis.speech_model import CheckedCodes
from myxtts.synthesis.synthesizer import REMEMBERED_REFERENCES, Synthesizer
from myxtts.synthesis.tensorflow_model import TensorFlowModel
from myxtts.synthesis.voice import read_voice
from tests.awkward_texts import AWKWARD, UNSPOKEN
from tests.processes import run_program
from tests.voice_maker import make_voice, noise, open_on_cpu

QUICK = HallucinationChecks(retries=0)
CURT = HallucinationChecks(retries=0, codes_per_token=0.5, spare_codes=4)
"""Random weights never stop by themselves: this cuts them after few codes."""
TEXT = "The first sentence is here. And this one comes second, as it should. Here is the last one."


@pytest.fixture(scope="module")
def voice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_voice(
        tmp_path_factory.mktemp("voice"),
        ["dvae", "conditioning", "gpt"],
        alignment_heads=((0, 0), (1, 0)),
        languages=("en", "fa"),
    )


@pytest.fixture(scope="module")
def synthesizer(voice_folder: Path) -> Synthesizer:
    return open_on_cpu(voice_folder)


@pytest.mark.parametrize(("text", "language"), AWKWARD, ids=lambda value: repr(value)[:24])
def test_an_awkward_text_is_spoken_or_refused_and_every_piece_is_accounted_for(
    synthesizer: Synthesizer, text: str, language: str
) -> None:
    try:
        speech = synthesizer.speak(text, language=language, checks=CURT)
    except SynthesisError as error:
        assert error.hint
        assert not any(sign.isascii() and sign.isalnum() for sign in text)
        return
    assert "".join(piece.text for piece in speech.report.pieces) == text
    assert set(speech.report.unspoken) & set(text) == set(UNSPOKEN.get((text, language), ""))
    assert speech.seconds > 0
    assert np.isfinite(speech.wave).all()
    assert np.abs(speech.wave).max() <= 1.5
    assert all(piece.attempts or piece.note or not piece.text.strip() for piece in speech.report.pieces)


def test_references_are_remembered_but_not_without_end(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    model = synthesizer.model
    kept = model.encode_reference([noise(1.0, 0) / np.float32(32768)], [noise(1.0, 0) / np.float32(32768)])

    def encode(clips: list[np.ndarray], windows: list[np.ndarray]) -> object:
        encoded.append(len(clips))
        return kept

    monkeypatch.setattr(model, "encode_reference", encode)
    clips = [noise(1.0, 100 + number) / np.float32(32768) for number in range(REMEMBERED_REFERENCES + 1)]
    for clip in clips[:-1]:
        synthesizer.latents(clip)
    synthesizer.latents(clips[0])
    assert len(encoded) == REMEMBERED_REFERENCES, "one that is known is not encoded again"
    synthesizer.latents(clips[-1])
    synthesizer.latents(clips[0])
    assert len(encoded) == REMEMBERED_REFERENCES + 1, "one that was used lately is kept"
    synthesizer.latents(clips[1])
    assert len(encoded) == REMEMBERED_REFERENCES + 2, "the one that was not used for longest is forgotten"
    synthesizer.forget_references()


def test_a_language_that_the_voice_was_not_trained_on_is_spoken_with_a_warning(synthesizer: Synthesizer) -> None:
    notes = {
        language: synthesizer.speak("one", language=language, checks=CURT).report.lines() for language in ("en", "de")
    }

    assert not any("learnt" in line for line in notes["en"])
    assert "it learnt en, fa" in notes["de"][0]


def test_what_cannot_be_written_is_no_text_that_was_not_spoken(synthesizer: Synthesizer, tmp_path: Path) -> None:
    (tmp_path / "report-001.json").mkdir()
    options = SynthOptions(voice=Path(), out=tmp_path / "a.wav", report=tmp_path / "report.json")

    with pytest.raises(OutputError, match=r"report-001\.json cannot be written"):
        speak_all(synthesizer, options, SpeakingOptions(), ["one", "two"])


def test_a_seed_repeats_itself_and_another_one_differs(synthesizer: Synthesizer) -> None:
    first, again = (synthesizer.speak(TEXT, seed=3, checks=QUICK).wave for _ in range(2))
    other = synthesizer.speak(TEXT, seed=4, checks=QUICK).wave

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_stream_has_the_bytes_of_the_whole_and_its_first_sound_comes_before_the_rest(
    synthesizer: Synthesizer,
) -> None:
    whole = synthesizer.speak(TEXT, checks=QUICK)
    report = SpeechReport()
    pieces = list(synthesizer.stream(TEXT, report=report, checks=QUICK))

    assert len(pieces) == len(whole.report.pieces) >= 3
    assert b"".join(pcm16(pieces)) == b"".join(pcm16([dataclasses.replace(pieces[0], wave=whole.wave)]))
    assert report.first_sound_s is not None
    assert report.first_sound_s < report.elapsed_s


def test_words_are_timed_in_order_within_the_speech(synthesizer: Synthesizer) -> None:
    speech = synthesizer.speak(TEXT, checks=QUICK)

    assert [word.word for word in speech.words] == TEXT.split()
    assert {word.source for word in speech.words} == {"attention"}
    times = [time for word in speech.words for time in (word.start_s, word.end_s)]
    assert times == sorted(times)
    assert times[-1] <= speech.seconds + 0.001


def test_speed_shortens_speech_without_changing_what_is_said(synthesizer: Synthesizer) -> None:
    usual, fast = (synthesizer.speak(TEXT, speed=speed, checks=QUICK).report.seconds for speed in (1.0, 1.5))

    assert usual / fast == pytest.approx(1.5, rel=0.1)


def test_guidance_is_noted_where_the_voice_was_trained_without_text_dropout(synthesizer: Synthesizer) -> None:
    guided = synthesizer.speak("Hello.", checks=QUICK, sampling=Sampling(guidance=2.0))

    assert not synthesizer.voice.manifest.classifier_free_guidance
    assert any("--guidance makes this voice no better" in line for line in guided.report.lines())
    assert synthesizer.speak("Hello.", checks=QUICK).report.guidance_note is None


def test_a_stream_whose_listener_left_keeps_its_report_and_timings(
    synthesizer: Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    options = SynthOptions(voice=tmp_path, stream=True, report=tmp_path / "r.json", timings=tmp_path / "words.json")

    with os.fdopen(writer, "wb", buffering=0) as left:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=left))
        with pytest.raises(BrokenPipeError):
            speak_all(synthesizer, options, SpeakingOptions(), ["Hello."])

    assert "elapsed_s" in json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (tmp_path / "words.json").is_file()


def test_checks_cut_what_does_not_stop_and_say_so(synthesizer: Synthesizer) -> None:
    checks = HallucinationChecks(retries=1, codes_per_token=0.5, spare_codes=0)
    checked = synthesizer.speak("This sentence will be cut.", checks=checks)
    free = synthesizer.speak("This sentence will be cut.", checks=None)

    assert checked.report.pieces[0].fault is not None
    assert checked.report.pieces[0].attempts == 2
    assert "of 2 attempts" in checked.report.lines()[0]
    assert free.report.pieces[0].fault == "no stop"
    assert checked.seconds < free.seconds


def test_a_saved_voice_speaks_as_its_reference_does(synthesizer: Synthesizer, tmp_path: Path) -> None:
    clips = []
    for number in range(2):
        clips.append(tmp_path / f"{number}.wav")
        write_audio(clips[-1], noise(2.0, 10 + number), 22050)
    latents = synthesizer.latents(clips)
    synthesizer.save_latents(tmp_path / "mine.safetensors", latents)

    by_clips = synthesizer.speak("Hello there, friend.", reference=clips, checks=QUICK).wave
    by_file = synthesizer.speak("Hello there, friend.", reference=tmp_path / "mine.safetensors", checks=QUICK).wave

    assert np.array_equal(by_clips, by_file)
    with pytest.raises(SynthesisError, match="cannot be mixed"):
        synthesizer.latents([clips[0], tmp_path / "mine.safetensors"])
    with pytest.raises(SynthesisError, match="list of reference clips is empty"):
        synthesizer.latents([])


def test_speakers_of_the_voice_sound_different(synthesizer: Synthesizer) -> None:
    anna, omid = (synthesizer.latents(speaker=name).latents_LD for name in ("anna", "omid"))

    assert not np.allclose(anna, omid)
    assert np.array_equal(synthesizer.latents(language="fa").latents_LD, omid)


def test_what_cannot_be_spoken_is_refused_with_a_way_out(synthesizer: Synthesizer, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("this is no sound")
    with pytest.raises(SynthesisError, match="not audio"):
        synthesizer.speak("Hello.", reference=tmp_path / "text.wav")
    with pytest.raises(SynthesisError, match=r"is not there|No such file"):
        synthesizer.speak("Hello.", reference=tmp_path / "nothing.wav")
    with pytest.raises(ConfigError, match="'xx'"):
        synthesizer.speak("Hello.", language="xx")
    with pytest.raises(ConfigError, match="--speed"):
        synthesizer.speak("Hello.", speed=0.0)
    with pytest.raises(SynthesisError, match="both a reference and speaker"):
        synthesizer.speak("Hello.", reference=tmp_path / "text.wav", speaker="anna")


def test_a_python_program_opens_voices_by_their_paths_and_saves_what_they_speak(tmp_path: Path) -> None:
    folder = make_voice(tmp_path, ["dvae", "conditioning", "gpt"])

    run_program("opened_voices", str(folder))

    first, again = (read_audio(tmp_path / f"{name}.wav") for name in ("first", "again"))
    assert len(first) > 0
    assert np.array_equal(first, again)


def test_options_are_taken_as_one_object_and_keywords_go_before_them(synthesizer: Synthesizer) -> None:
    options = SpeakingOptions(seed=3, speed=1.5, checks=QUICK, sampling_changes={"temperature": 1.5})

    whole = synthesizer.speak("Hello there.", options)
    keywords = synthesizer.speak(
        "Hello there.",
        seed=3,
        speed=1.5,
        checks=QUICK,
        sampling=dataclasses.replace(synthesizer.voice.sampling, temperature=1.5),
    )

    assert np.array_equal(whole.wave, keywords.wave)
    assert not np.array_equal(whole.wave, synthesizer.speak("Hello there.", options, seed=4).wave)


def test_a_codec_alone_cannot_speak(tmp_path: Path) -> None:
    folder = make_voice(tmp_path, ["dvae"])

    with pytest.raises(SynthesisError, match="no conditioning"):
        open_on_cpu(folder)


def test_a_voice_with_a_decoder_speaks_at_24_khz(tmp_path: Path) -> None:
    folder = make_voice(tmp_path, ["conditioning", "gpt", "speaker_encoder", "hifigan"])
    synthesizer = open_on_cpu(folder)

    speech = synthesizer.speak("Hello.", checks=QUICK, sampling=Sampling(temperature=0.9))

    assert speech.sample_rate == 24000
    assert {word.source for word in speech.words} == {"estimated"}
    assert synthesizer.codec is None


@pytest.fixture(scope="module")
def decoding_voice(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    parts = ["conditioning", "gpt", "speaker_encoder", "hifigan"]
    return open_on_cpu(make_voice(tmp_path_factory.mktemp("decoding"), parts))


def networks_of(synthesizer: Synthesizer) -> TensorFlowModel:
    assert isinstance(synthesizer.model, TensorFlowModel)
    return synthesizer.model


VARIED = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""Random weights repeat themselves otherwise."""


def test_a_stream_hands_out_sound_before_the_last_code_is_made(
    decoding_voice: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count_codes(decoding_voice, monkeypatch)
    codes_at_each_part = [sum(made) for _ in decoding_voice.stream("Hello there.", checks=None, sampling=VARIED)]

    assert codes_at_each_part[0] == 20
    assert codes_at_each_part[-1] == sum(made) == 50


@pytest.mark.parametrize("checks", [None, HallucinationChecks(retries=0, codes_per_token=100)])
def test_a_stream_in_parts_has_the_samples_of_the_whole(
    decoding_voice: Synthesizer, checks: HallucinationChecks | None
) -> None:
    text = "Hello there, hello. And again hello there."
    whole = decoding_voice.speak(text, checks=checks, sampling=VARIED)
    report = SpeechReport()
    parts = list(decoding_voice.stream(text, report=report, checks=checks, sampling=VARIED))
    streamed = np.concatenate([part.wave for part in parts])

    assert len(parts) > len(report.pieces) == 2
    assert len(streamed) == len(whole.wave)
    # Sums of another length are rounded differently.
    np.testing.assert_allclose(streamed, whole.wave, atol=2e-6)
    assert tuple(word for part in parts for word in part.words) == whole.words
    assert [piece.seconds for piece in report.pieces] == [piece.seconds for piece in whole.report.pieces]


def test_a_fault_is_tried_again_while_nothing_was_yielded_and_cut_afterwards(decoding_voice: Synthesizer) -> None:
    def report_with(**limits: float) -> SpeechReport:
        report = SpeechReport()
        checks = HallucinationChecks(retries=1, spare_codes=0, **limits)
        list(decoding_voice.stream("Hello there.", report=report, checks=checks, sampling=VARIED))
        return report

    [silent] = report_with(codes_per_token=1.2).pieces
    [piece] = report_with(codes_per_token=4.0).pieces

    assert (silent.fault, silent.attempts) == ("no stop", 2)
    assert (piece.fault, piece.attempts) == ("no stop", 1)
    assert "too late to try again" in str(piece.note)


def test_a_pause_in_the_middle_does_not_end_a_stream(decoding_voice: Synthesizer) -> None:
    checks = HallucinationChecks(retries=0, codes_per_token=100, loop_codes=10)
    with pausing_at(networks_of(decoding_voice).parts.gpt, range(25, 45)):
        whole = decoding_voice.speak("Hello there.", checks=checks, sampling=VARIED)
        report = SpeechReport()
        streamed = np.concatenate(
            [part.wave for part in decoding_voice.stream("Hello there.", report=report, checks=checks, sampling=VARIED)]
        )

    assert report.pieces[0].fault == whole.report.pieces[0].fault == "no stop"
    assert len(streamed) == len(whole.wave)


@contextmanager
def pausing_at(gpt: GPT, positions: range) -> Iterator[None]:
    """The codes at these positions are all the same one: a strong sign in their place embedding leads to it."""
    sign_D = np.random.default_rng(0).choice([-1.0, 1.0], gpt.config.gpt_width)
    changed = (gpt.audio_position.table, gpt.audio_head.kernel, gpt.audio_head.bias)
    before = [variable.numpy() for variable in changed]
    places, kernel, bias = (value.copy() for value in before)
    places[positions.start : positions.stop] += 1000.0 * sign_D
    kernel[:, 7], bias[7] = 40.0 * sign_D / len(sign_D) ** 0.5, -100.0
    for variable, value in zip(changed, (places, kernel, bias), strict=True):
        variable.assign(value)
    try:
        yield
    finally:
        for variable, value in zip(changed, before, strict=True):
            variable.assign(value)


def test_a_stream_yields_no_loop(decoding_voice: Synthesizer) -> None:
    bias = networks_of(decoding_voice).parts.gpt.audio_head.bias
    usual = bias.numpy()
    bias.assign(np.where(np.arange(len(usual)) == 7, 100.0, usual))
    report = SpeechReport()
    parts = list(decoding_voice.stream("Hello there.", report=report))
    bias.assign(usual)

    assert (report.pieces[0].fault, report.pieces[0].attempts) == ("loop", 3)
    assert report.pieces[0].cut_seconds > 1
    assert len(parts) == 1


def count_codes(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes of each chunk, written down when the generator has made it."""
    made: list[int] = []
    generator = networks_of(synthesizer).generator
    original = generator.stream

    def watched(*arguments: Any, **options: Any) -> Iterator[Any]:
        for chunk in original(*arguments, **options):
            made.append(int(chunk.lengths_B[0]))
            yield chunk

    monkeypatch.setattr(generator, "stream", watched)
    return made


def test_only_a_voice_without_alignments_has_a_penalty_on_repetition(tmp_path: Path) -> None:
    plain = read_voice(make_voice(tmp_path / "plain", ["dvae", "conditioning", "gpt"]))
    aligned = read_voice(make_voice(tmp_path / "aligned", ["dvae", "conditioning", "gpt"], alignment_heads=((1, 0),)))

    assert plain.sampling.repetition_penalty == 2.0
    assert aligned.sampling.repetition_penalty == 1.0


@pytest.mark.parametrize("part", ["dvae", "mel_decoder"])
def test_the_postfilter_is_that_of_the_part_that_makes_the_mels(tmp_path: Path, part: str) -> None:
    parts = [*dict.fromkeys(["dvae", "conditioning", "gpt", part])]
    gains = {part: [1.0] * 10 + [2.0] * 70}
    speaker = open_on_cpu(make_voice(tmp_path, parts, postfilter=gains))

    def spoken() -> np.ndarray:
        return speaker.speak("hello", speaker="anna", checks=CURT).wave

    sharp = spoken()
    networks_of(speaker).set_postfilter({})
    smooth = spoken()
    networks_of(speaker).set_postfilter(gains)

    assert len(sharp) != len(smooth) or np.abs(sharp - smooth).max() > 0.01
    np.testing.assert_array_equal(spoken(), sharp)


def test_only_a_voice_that_was_trained_with_text_dropout_speaks_with_guidance(tmp_path: Path) -> None:
    parts = ["dvae", "conditioning", "gpt"]
    plain = read_voice(make_voice(tmp_path / "plain", parts, alignment_heads=((1, 0),)))
    guided = read_voice(
        make_voice(tmp_path / "guided", parts, alignment_heads=((1, 0),), classifier_free_guidance=True)
    )

    assert plain.sampling.guidance == 1.0
    assert guided.sampling == dataclasses.replace(plain.sampling, guidance=GUIDANCE)
    sampling = Sampling(temperature=0.75, top_k=9)
    published = make_voice(tmp_path / "published", parts, classifier_free_guidance=True, sampling=sampling)
    assert read_voice(published).sampling == Sampling(temperature=0.75, top_k=9, guidance=GUIDANCE)


@pytest.mark.parametrize("parts", [["dvae"], ["dvae", "mel_decoder"]], ids=["codec", "mel decoder"])
def test_a_voice_with_a_voice_vector_speaks_the_same_codes_in_the_voice_of_the_reference(
    tmp_path: Path, parts: list[str]
) -> None:
    folder = make_voice(tmp_path / "many", [*parts, "conditioning", "gpt"], sizes={"voice_width": 8})
    synthesizer = open_on_cpu(folder)
    layers = synthesizer.model.parts
    for decoder in (layers.dvae.decoder, *([layers.mel_decoder.decoder] if "mel_decoder" in parts else [])):
        for modulation in decoder.voiced:
            modulation.project.kernel.assign(np.random.default_rng(0).normal(0, 0.3, modulation.project.kernel.shape))
    made = CheckedCodes(
        np.arange(20, dtype=np.int32), np.zeros((20, 64), np.float32), np.zeros(0, np.int32), None, 1, 0, None
    )

    vectors = [synthesizer.latents(speaker=name).speaker_V for name in ("anna", "omid", "anna")]
    waves = [synthesizer.model.decode(made, [4, 5], vector, 1.0) for vector in vectors]

    assert [vector.shape for vector in vectors] == [(8,)] * 3
    assert np.linalg.norm(vectors[0]) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(waves[0], waves[2])
    assert np.abs(waves[0] - waves[1]).max() > 1e-4
    with pytest.raises(SynthesisError, match="needs a voice vector"):
        synthesizer.model.decode(made, [4, 5], None, 1.0)
