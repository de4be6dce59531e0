"""Runs that start from a voice: they keep its weights, hear references as it does, and continue where they stood."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.config.config import XTTSConfig
from myxtts.errors import CheckpointError, OutputError, UsageError
from myxtts.models.weights import read_arrays, read_manifest
from myxtts.synthesis.tensorflow_model import TensorFlowModel
from myxtts.synthesis.voice import (
    CONFIG_FILE,
    export_voice,
    half_precision,
    read_voice,
    read_voice_config,
    read_voice_tokenizer,
    trained_on_all_clips,
    voice_manifest,
)
from tests.corpus_maker import make_ljspeech
from tests.processes import run_program
from tests.voice_maker import make_voice, noise, open_on_cpu

SPEAKING = ["dvae", "conditioning", "gpt"]
EXACT = ("dvae/encoder/", "dvae/codebook/", "dvae/mel_")
"""Weights that decide codes."""


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_voice(tmp_path_factory.mktemp("voice"), SPEAKING, trained_on=("clips of mine",))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ljspeech(tmp_path_factory.mktemp("corpus") / "en", 10)


@pytest.mark.slow
def test_a_run_starts_at_the_voices_loss_and_a_stopped_one_continues_from_its_checkpoint(
    voice: Path, corpus: Path, tmp_path: Path
) -> None:
    folders = map(str, (voice, corpus, tmp_path))
    seen = json.loads(
        run_program("fine_tuning_runs", *folders, few_steps=True, TF_NUM_INTRAOP_THREADS="1").splitlines()[-1]
    )

    assert len(seen["losses"]) == 3
    assert seen["losses"][0] == pytest.approx(seen["initial"], rel=1e-5)
    assert seen["losses"][2] == pytest.approx(seen["halfway"], rel=1e-5)
    assert seen["losses"][2] != pytest.approx(seen["from_start"], rel=1e-3)
    before, after = read_arrays(voice), read_arrays(tmp_path / "run" / "voice")
    assert voice_manifest(tmp_path / "run" / "voice").parts == tuple(SPEAKING)
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("dvae/"), name


def with_scales(folder: Path, source: Path, *, normed: bool) -> Path:
    """A copy of the voice whose DVAE has a scale of its own in each channel, read as XTTS v2 does or not."""
    from myxtts.models.weights import save_arrays
    from myxtts.synthesis.voice import TOKENIZER_FILE

    folder.mkdir()
    config = read_voice_config(source)
    model = dataclasses.replace(config.model, normed_conditioning=normed)
    XTTSConfig(model=model).to_yaml(folder / CONFIG_FILE)
    read_voice_tokenizer(source).save(folder / TOKENIZER_FILE)
    arrays: dict[str, Any] = read_arrays(source)
    arrays["dvae/mel_scale"] = np.linspace(1.5, 6.0, 80, dtype=np.float32)
    save_arrays(folder, arrays, read_manifest(source).metadata)
    return folder


def test_training_reads_a_reference_exactly_as_speaking_does(voice: Path, tmp_path: Path) -> None:
    from myxtts.training.stages.gpt import GPTStage

    wave = noise(1.5, 3)
    latents = {}
    for normed in (True, False):
        synthesizer = open_on_cpu(with_scales(tmp_path / f"normed-{normed}", voice, normed=normed))
        assert isinstance(synthesizer.model, TensorFlowModel)
        parts = synthesizer.model.parts
        stage = GPTStage(parts.gpt, parts.conditioning, parts.dvae)
        lengths = np.array([len(wave)], np.int32)
        batch = stage.process(
            {"wave": wave[None], "wave_lengths": lengths, "reference": wave[None], "reference_lengths": lengths,
             "text": np.ones((1, 3), np.int32), "text_lengths": np.array([3], np.int32),
             "speaker": np.zeros(1, np.int32)}
        )  # fmt: skip
        trained = parts.conditioning(batch["reference"], batch["reference_lengths"]).numpy()[0]
        spoken = synthesizer.latents([wave.astype(np.float32) / 32768.0]).latents_LD
        np.testing.assert_allclose(trained, spoken, atol=1e-4)
        latents[normed] = spoken
    assert np.abs(latents[True] - latents[False]).max() > 0.01


def test_a_normed_voice_without_its_dvae_is_refused(tmp_path: Path) -> None:
    from myxtts.models.reference_mel import reference_mel
    from tests.voice_maker import small_config

    with pytest.raises(CheckpointError, match="has no dvae"):
        reference_mel(dataclasses.replace(small_config(), normed_conditioning=True), None)


def test_an_exported_voice_has_the_weights_and_nothing_of_the_training(voice: Path, tmp_path: Path) -> None:
    from myxtts.cli.export import main

    shutil.copytree(voice, tmp_path / "run" / "voice")
    config = read_voice_config(voice)
    folders = dataclasses.replace(config.data, train_data="/mine", val_data="/held")
    dataclasses.replace(config, data=folders).to_yaml(tmp_path / "run" / "voice" / CONFIG_FILE)

    assert main([str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert main([str(tmp_path / "out"), str(tmp_path / "again")]) == 0

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.yaml", "manifest.json", "model.safetensors", "speakers.safetensors", "tokenizer.json",
    ]  # fmt: skip
    before, after = read_arrays(voice), read_arrays(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    exported = read_voice(tmp_path / "out")
    assert (exported.longest_text_tokens, list(exported.speakers)) == (60, ["anna", "omid"])
    assert exported.config.training == XTTSConfig().training
    assert (exported.config.data.train_data, exported.config.data.val_data) == (None, None)
    assert trained_on_all_clips(tmp_path / "out"), "no clip of its training folder was held out"
    assert trained_on_all_clips(tmp_path / "again")
    assert not trained_on_all_clips(voice)
    assert voice_manifest(tmp_path / "again").trained_on == ("clips of mine",)
    with pytest.raises(UsageError, match="not an empty folder"):
        main([str(tmp_path / "run"), str(tmp_path / "out")])
    with pytest.raises(OutputError, match=r"config\.yaml/out cannot be written"):
        main([str(tmp_path / "run"), str(tmp_path / "out" / "config.yaml" / "out")])


def test_a_half_export_is_half_as_large_and_speaks_the_same_but_for_rounding(voice: Path, tmp_path: Path) -> None:
    export_voice(voice, tmp_path / "half", half=True)

    stored, before = read_arrays(tmp_path / "half"), read_arrays(voice)
    for name, value in stored.items():
        assert value.dtype == (np.float32 if name.startswith(EXACT) else np.float16), name
    half, whole = (open_on_cpu(folder) for folder in (tmp_path / "half", voice))
    wave = noise(1.0, 4).astype(np.float32) / 32768.0
    difference = half.latents([wave]).latents_LD - whole.latents([wave]).latents_LD
    assert 0 < np.abs(difference).max() < 0.02
    assert isinstance(half.model, TensorFlowModel)
    assert half.model.parts.gpt.weights[0].dtype == "float32"
    assert sum(v.nbytes for v in stored.values()) < 0.75 * sum(v.nbytes for v in before.values())


def test_values_beyond_16_bits_are_not_stored_in_16_bits(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gpt/x has values beyond the range of 16 bits"):
        half_precision("gpt/x", np.array([1e6], np.float32))


@pytest.mark.slow
def test_a_fine_tuning_that_no_longer_gains_stops_by_itself_and_speaks_with_its_best_weights(
    voice: Path, corpus: Path, tmp_path: Path
) -> None:
    output = run_program("fine_tuning_ends", str(voice), str(corpus), str(tmp_path), few_steps=True)
    first, again = json.loads(output.splitlines()[-1])

    assert first["code"] == 0
    assert first["last_step"] == first["best"] + 12 < 40, "three validations without a gain, one every fourth step"
    assert again == first, "the same command finds it finished"
    assert voice_manifest(tmp_path / "run" / "voice").trained_to == ("gpt", first["best"])
