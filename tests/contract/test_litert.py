"""A voice speaks with LiteRT as with TensorFlow: the same random numbers, mels, latents, codes, samples.

Voices of random weights, exported once. In float32 the codes are the same; beyond that, what rounding allows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from myxtts.audio.io import write_audio
from myxtts.audio.mel import CONDITIONING_MEL, DVAE_MEL, SPEAKER_MEL, MelSettings, MelSpectrogram
from myxtts.audio.numpy_mel import log_mel
from myxtts.config.speaking import Sampling
from myxtts.errors import CheckpointError, ConfigError, DataError, SynthesisError
from myxtts.runtime.philox import stateless_uniform
from myxtts.synthesis import numpy_sampling, sampling
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.litert.export import export_litert
from myxtts.synthesis.litert.model import LiteRTModel
from myxtts.synthesis.opening import open_voice
from myxtts.synthesis.references import VoiceLatents
from myxtts.synthesis.speech_model import Text, TextBatch
from myxtts.synthesis.synthesizer import Synthesizer
from tests.processes import run_program
from tests.voice_maker import make_voice, noise, open_on_cpu

CHECKS = HallucinationChecks(retries=0)
HEADS = {"alignment_heads": ((0, 0), (1, 1))}
VOICED = {"voice_width": 16, "mel_frame_blocks": 1, "pitch_predictor": True}
KINDS: dict[str, tuple[list[str], dict[str, int], dict[str, Any]]] = {
    "dvae": (["dvae", "conditioning", "gpt"], {}, {}),
    "mel": (["dvae", "conditioning", "gpt", "mel_decoder"], VOICED, HEADS),
    "mel without pitch": (["dvae", "conditioning", "gpt", "mel_decoder"], {}, HEADS),
    "hifigan": (["dvae", "conditioning", "gpt", "speaker_encoder", "hifigan"], {}, {}),
}
WAYS = [
    Sampling(temperature=0.0),
    Sampling(temperature=3.0, top_k=0, top_p=1.0),
    Sampling(top_p=0.5, repetition_penalty=2.0),
    Sampling(guidance=2.0, temperature=1.0),
]
TEXT_BU = np.array([[5, 6, 7, 8, 9, 10], [7, 8, 9, 0, 0, 0]], np.int32)
LENGTHS = [6, 3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Each kind of voice, and its export."""
    base = tmp_path_factory.mktemp("voices")
    made = {}
    for kind, (parts, sizes, about) in KINDS.items():
        folder = make_voice(base / kind, parts, sizes, **about)
        made[kind] = (folder, export_litert(folder, base / f"{kind}-exported", weights="f32"))
    return made


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, folders: dict[str, tuple[Path, Path]]) -> tuple[Synthesizer, Synthesizer]:
    """One voice with TensorFlow, and with LiteRT."""
    folder, exported = folders[request.param]
    return open_on_cpu(folder), open_voice(exported)


@pytest.fixture(scope="module")
def model(folders: dict[str, tuple[Path, Path]]) -> LiteRTModel:
    found = open_voice(folders["mel"][1]).model
    assert isinstance(found, LiteRTModel)
    return found


@pytest.mark.parametrize("seed", [0, 3, 2**31 - 2])
@pytest.mark.parametrize("count", [1, 6, 1001])
def test_random_numbers_are_tensorflows_own(seed: int, count: int) -> None:
    expected = tf.random.stateless_uniform([count], [seed, 0]).numpy()

    np.testing.assert_array_equal(stateless_uniform(count, seed), expected)


@pytest.mark.parametrize("settings", [DVAE_MEL, CONDITIONING_MEL, SPEAKER_MEL], ids=["dvae", "conditioning", "speaker"])
@pytest.mark.parametrize("samples", [1, 300, 20000])
def test_mels_are_those_of_training(settings: MelSettings, samples: int) -> None:
    wave_S = (np.random.default_rng(samples).standard_normal(samples) * 0.1).astype(np.float32)

    expected, _ = MelSpectrogram(settings).log_mel(wave_S[None], np.array([samples]))

    np.testing.assert_allclose(log_mel(wave_S, settings), expected[0], atol=2e-4)


@pytest.mark.parametrize("way", WAYS[:3], ids=repr)
def test_the_same_random_number_samples_the_same_code(way: Sampling) -> None:
    random = np.random.default_rng(0)
    logits_BV = random.standard_normal((400, 66)).astype(np.float32) * 3
    logits_BV[:, 5] = logits_BV[:, 9]  # of equals the lower one comes first
    uniform_B = random.random(400, np.float32)

    theirs = sampling.sample(tf.constant(logits_BV), sampling.sampling_tensors(way, 66), uniform_B[:, None]).numpy()

    assert np.mean(numpy_sampling.sample(logits_BV, way, uniform_B) == theirs) > 0.99


def test_a_reference_has_the_same_latents(pair: tuple[Synthesizer, Synthesizer]) -> None:
    clip = noise(7.0, 3).astype(np.float32) / 32768  # of more than one window

    theirs, ours = (synthesizer.latents(clip) for synthesizer in pair)

    np.testing.assert_allclose(ours.latents_LD, theirs.latents_LD, atol=1e-4)
    assert (ours.speaker_V is None) == (theirs.speaker_V is None)
    if theirs.speaker_V is not None:
        np.testing.assert_allclose(ours.speaker_V, theirs.speaker_V, atol=1e-4)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_the_same_seed_generates_the_same_codes(pair: tuple[Synthesizer, Synthesizer], way: Sampling) -> None:
    latents_1LD = pair[0].latents(speaker="anna").latents_LD[None]

    theirs, ours = (
        synthesizer.model.generate(
            TextBatch(latents_1LD, TEXT_BU, LENGTHS, sampling=way, seeds=[3, 4], max_codes=[40, 25])
        )
        for synthesizer in pair
    )

    assert ours.lengths_B.tolist() == theirs.lengths_B.tolist() == [40, 25]
    assert ours.stopped_B.tolist() == theirs.stopped_B.tolist()
    assert ours.spoken_token_BN.shape[1] == theirs.spoken_token_BN.shape[1]
    for row, count in enumerate((40, 25)):
        np.testing.assert_array_equal(ours.codes_BN[row, :count], theirs.codes_BN[row, :count])
        np.testing.assert_allclose(ours.latents_BND[row, :count], theirs.latents_BND[row, :count], atol=1e-4)
        np.testing.assert_array_equal(ours.spoken_token_BN[row][:count], theirs.spoken_token_BN[row][:count])


@pytest.mark.parametrize("speed", [1.0, 1.3])
def test_a_text_has_the_same_samples_and_times(pair: tuple[Synthesizer, Synthesizer], speed: float) -> None:
    theirs, ours = (s.speak("Hello there. And once more.", checks=CHECKS, speed=speed) for s in pair)

    assert len(ours.wave) == len(theirs.wave)
    assert np.abs(ours.wave - theirs.wave).max() < 0.02 * np.abs(theirs.wave).max()
    assert ours.words == theirs.words
    assert ours.report.decoder == theirs.report.decoder


def test_a_stream_has_the_samples_of_the_whole(pair: tuple[Synthesizer, Synthesizer]) -> None:
    whole = pair[1].speak("Hello there.", checks=CHECKS).wave

    parts = [piece.wave for piece in pair[1].stream("Hello there.", checks=CHECKS)]

    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)


def test_codes_come_in_chunks(model: LiteRTModel) -> None:
    latents_1LD = np.random.default_rng(0).standard_normal((1, 8, 64)).astype(np.float32)
    whole = model.generate(TextBatch(latents_1LD, TEXT_BU, LENGTHS, seeds=5, max_codes=[21, 0]))

    chunks = list(model.stream(TextBatch(latents_1LD, TEXT_BU, LENGTHS, seeds=5, max_codes=[21, 0]), chunk=8))

    assert [chunk.lengths_B.tolist() for chunk in chunks] == [[8, 0], [8, 0], [5, 0]]
    assert np.concatenate([chunk.codes_BN[0, : chunk.lengths_B[0]] for chunk in chunks]).tolist() == (
        whole.codes_BN[0].tolist()
    )


def test_a_row_that_joins_late_among_others_generates_what_it_does_alone(model: LiteRTModel) -> None:
    latents_LD = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    texts = {0: [5, 6, 7], 1: [8, 9], 2: [6] * 40, 3: [7, 8, 9, 10]}
    ways = {0: WAYS[0], 1: WAYS[3], 2: WAYS[1], 3: WAYS[3]}

    def alone(name: int) -> list[int]:
        batch = model.new_batch()
        batch.join(Text(latents_LD, texts[name], ways[name], name, 10 + 3 * name))
        return [made.code for _ in range(40) for made in batch.step()]

    batch, names, together = model.new_batch(), {}, {name: [] for name in texts}
    for step in range(60):
        if step % 4 == 0 and step // 4 in texts:
            name = step // 4
            row = batch.join(Text(latents_LD, texts[name], ways[name], name, 10 + 3 * name))
            names[row] = name
        for made in batch.step():
            together[names[made.row]].append(made.code)
        if step == 6:
            batch.leave(next(row for row, name in names.items() if name == 1))

    assert batch.rows == ()
    assert together[1] == alone(1)[:3]
    for name in (0, 2, 3):
        assert together[name] == alone(name)


def test_a_stop_ends_its_row_alone(model: LiteRTModel, monkeypatch: pytest.MonkeyPatch) -> None:
    latents_LD = np.zeros((8, 64), np.float32)
    batch = model.new_batch()
    rows = [batch.join(Text(latents_LD, text, WAYS[1], seed)) for seed, text in enumerate([[5], [6, 7]])]
    batch._rows[rows[0]].predicted[0][1][model.gpt.audio_stop] = 1e3

    first, second = batch.step()

    assert (first.stopped, first.finished, second.stopped, second.finished) == (True, True, False, False)
    assert batch.rows == (rows[1],)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"latents_LD": np.zeros((3, 64), np.float32)}, ConfigError, r"shape \(3, 64\)"),
        ({"ids": [5] * 121}, DataError, "121 tokens"),
        ({"ids": [5, -1]}, DataError, "text token -1"),
        ({"ids": [10**6]}, DataError, "text token 1000000"),
        ({"max_codes": 0}, ConfigError, "max_codes is 0"),
    ],
)
def test_what_the_gpt_cannot_take_does_not_join(
    model: LiteRTModel, changes: dict, error: type[Exception], words: str
) -> None:
    batch = model.new_batch()

    with pytest.raises(error, match=words):
        batch.join(Text(**{"latents_LD": np.zeros((8, 64), np.float32), "ids": [5], **changes}))
    assert batch.rows == ()


@pytest.mark.parametrize("weights", ["f16", "int8"])
def test_smaller_weights_speak_much_the_same(
    folders: dict[str, tuple[Path, Path]], weights: str, tmp_path: Path
) -> None:
    folder, exported = folders["mel"]
    smaller = export_litert(folder, tmp_path / "smaller", weights=weights)  # type: ignore[arg-type]

    theirs, ours = (open_voice(path).latents(speaker="anna").latents_LD for path in (exported, smaller))

    assert sum(path.stat().st_size for path in smaller.glob("*.tflite")) < 0.7 * sum(
        path.stat().st_size for path in exported.glob("*.tflite")
    )
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(theirs).max()
    assert len(open_voice(smaller).speak("Hello.", checks=CHECKS).wave)


def test_an_exported_voice_speaks_where_there_is_no_tensorflow(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    write_audio(tmp_path / "clip.wav", noise(2.0, 4), 22050)

    for kind in folders:
        said = run_program("speaking_without_tensorflow", str(folders[kind][1]), str(tmp_path / "clip.wav"), fresh=True)
        assert said == "True 4 True True\n"


def test_an_exported_voice_has_no_weights_for_anything_else(folders: dict[str, tuple[Path, Path]]) -> None:
    exported = folders["dvae"][1]

    with pytest.raises(SynthesisError, match="no weights for TensorFlow"):
        open_voice(exported, runtime="tensorflow")
    with pytest.raises(CheckpointError, match="exported for speaking"):
        export_litert(exported, exported.parent / "again")


def test_a_voice_vector_of_another_size_is_refused(folders: dict[str, tuple[Path, Path]]) -> None:
    synthesizer = open_voice(folders["mel"][1])
    latents_LD = synthesizer.latents(speaker="anna").latents_LD

    for vector, words in (
        (np.zeros(3, np.float32), r"takes \(1, 16\) and got \(1, 3\)"),
        (None, "needs a voice vector"),
    ):
        with pytest.raises(SynthesisError, match=words):
            synthesizer.speak("Hello.", reference=VoiceLatents(latents_LD, vector), checks=CHECKS)


def test_latents_saved_with_one_runtime_are_read_by_the_other(
    pair: tuple[Synthesizer, Synthesizer], tmp_path: Path
) -> None:
    theirs, ours = pair
    theirs.save_latents(tmp_path / "mine.safetensors", theirs.latents(speaker="anna"))

    assert len(ours.speak("Hello.", reference=tmp_path / "mine.safetensors", checks=CHECKS).wave)
