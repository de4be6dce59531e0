"""The built-in voice chooses among generations of a text by its own aligner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from myxtts import open_voice
from myxtts.audio.mel import DVAE_MEL, N_MELS
from myxtts.audio.numpy_mel import log_mel
from myxtts.errors import ConfigError, DataError, SynthesisError
from myxtts.models.numpy_aligner import NumpyAligner
from myxtts.synthesis.hallucinations import HallucinationChecks, attempt_seed
from myxtts.synthesis.reranking import generate_candidates, reranker_of
from myxtts.synthesis.speech_model import Generated, TextBatch
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voice import ALIGNER_FILE, BASE, BUILT_IN, read_voice

TEXT = "The old man walked slowly home."


@pytest.fixture(scope="module")
def base() -> Synthesizer:
    return open_voice(BASE)


def mel_of(wave: np.ndarray) -> np.ndarray:
    return log_mel(wave, DVAE_MEL)


def test_speech_of_a_text_fits_it_better_than_speech_of_another(base: Synthesizer) -> None:
    reranker = reranker_of(base.voice)
    assert reranker is not None
    ids = base.voice.tokenizer.encode(TEXT, "en")
    own, other = (mel_of(base.speak(text).wave) for text in (TEXT, "A young girl ran quickly off."))

    assert reranker.score(own, ids) > reranker.score(other, ids) + 10


def test_the_candidate_that_fits_best_is_spoken_whole_or_streamed(base: Synthesizer) -> None:
    reranker = reranker_of(base.voice)
    assert reranker is not None
    ids, latents = base.voice.tokenizer.encode(TEXT, "en"), base.latents()
    texts = TextBatch(latents.latents_LD[None], [ids], [len(ids)], base.voice.sampling, 3)
    [made] = generate_candidates(base.model, texts, 3, checks=None, last_sounding=[len(ids) - 1])
    mels = [base.model.spoken_mel(one, ids, latents.speaker_V) for one in made]
    scores = [reranker.score(mel.mel_TM, ids) for mel in mels if mel is not None]
    assert len(set(scores)) == 3, "the candidates must differ for this test to tell anything"
    best = int(np.argmax(scores))

    chosen = base.speak(TEXT, seed=3, candidates=3).wave

    alone = base.speak(TEXT, seed=attempt_seed(3, best), candidates=1).wave
    assert len(chosen) == len(alone)
    # Rounding differs between one row and three, and the vocoder's phase keeps every difference of the pitch.
    assert np.abs(mel_of(chosen) - mel_of(alone)).mean() < 0.1
    streamed = np.concatenate([piece.wave for piece in base.stream(TEXT, seed=3, candidates=3)])
    np.testing.assert_array_equal(streamed, chosen)


def test_the_alignment_follows_the_text_from_its_first_sound_to_its_last(base: Synthesizer) -> None:
    reranker = reranker_of(base.voice)
    assert reranker is not None
    ids = base.voice.tokenizer.encode(TEXT, "en")
    mel_TM = mel_of(base.speak(TEXT).wave)

    spoken_N = reranker.alignment(mel_TM, ids, len(mel_TM) // 4)

    assert (np.diff(spoken_N) >= 0).all()
    assert spoken_N[0] <= 2
    assert len(ids) - 3 <= spoken_N[-1] < len(ids)
    np.testing.assert_array_equal(reranker.alignment(mel_TM, [], 5), np.zeros(5))


class Scripted:
    """A generator whose codes stop, or do not, by their seed."""

    max_codes = 500

    def __init__(self, endless: set[int]) -> None:
        self.endless, self.asked = endless, list[int]()

    def generate(self, texts: TextBatch) -> Generated:
        seeds = texts.row_seeds()
        self.asked += seeds
        codes_BN = np.array([np.random.default_rng(seed).integers(0, 99, 40) for seed in seeds])
        stopped_B = np.array([seed not in self.endless for seed in seeds])
        rows = len(seeds)
        return Generated(codes_BN, np.full(rows, 40), stopped_B, np.zeros((rows, 40, 4)), np.zeros((rows, 0), np.int32))

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        yield self.generate(texts)


def candidates_of(generator: Scripted, count: int) -> list[list[str | None]]:
    texts = TextBatch(np.zeros((1, 2, 4)), np.zeros((2, 20), np.int32), [20, 20], seeds=[1, 2])
    made = generate_candidates(generator, texts, count, checks=HallucinationChecks(), last_sounding=[19, 19])
    return [[one.fault for one in group] for group in made]


def test_a_candidate_with_a_fault_is_left_out() -> None:
    generator = Scripted({attempt_seed(1, 0), attempt_seed(1, 2)})

    assert candidates_of(generator, 3) == [[None], [None] * 3]
    assert len(generator.asked) == 6


def test_a_text_whose_candidates_all_have_a_fault_is_tried_again() -> None:
    generator = Scripted({attempt_seed(1, number) for number in range(4)})

    assert candidates_of(generator, 3) == [[None], [None] * 3]
    assert attempt_seed(1, 4) in generator.asked
    assert candidates_of(Scripted({attempt_seed(1, number) for number in range(9)}), 3) == [["no stop"], [None] * 3]


def test_without_an_aligner_one_is_spoken_and_more_are_refused(base: Synthesizer) -> None:
    plain = Synthesizer(replace(base.voice, aligner=None), base.model)

    np.testing.assert_array_equal(plain.speak(TEXT).wave, plain.speak(TEXT, candidates=1).wave)
    with pytest.raises(SynthesisError, match="--candidates is 4"):
        plain.speak(TEXT, candidates=4)
    with pytest.raises(ConfigError, match="--candidates is 0"):
        base.speak(TEXT, candidates=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in (BUILT_IN / BASE).iterdir():
        if path.is_file() and path.name != "model.safetensors":
            shutil.copyfile(path, tmp_path / path.name)
    return tmp_path


@pytest.mark.parametrize("damage", ["cut", "shape", "bomb"])
def test_a_damaged_or_hostile_aligner_is_refused(folder: Path, damage: str) -> None:
    path = folder / ALIGNER_FILE
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        arrays = {name: np.zeros(3, np.float32) for name in "abcdefghij"}
        if damage == "bomb":
            arrays["a"] = np.zeros(20_000_000, np.float32)
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]

    with pytest.raises(DataError, match="cannot be read") as raised:
        read_voice(folder)
    assert raised.value.hint


def test_an_aligner_of_another_text_front_end_does_not_choose(
    base: Synthesizer, caplog: pytest.LogCaptureFixture
) -> None:
    few = [(5 * N_MELS, 4), (4,), (4,), (4,), (4, 3), (3,)]
    aligner = NumpyAligner([np.zeros(shape, np.float32) for shape in few])

    assert reranker_of(replace(base.voice, aligner=aligner)) is None
    assert "knows 2 sounds" in caplog.text
