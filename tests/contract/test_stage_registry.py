"""What holds for every declared stage, and that a new one is a module and an entry in the registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myxtts.config.model import ModelConfig
from myxtts.config.parts import CORE_PARTS, DECODERS, Decoder, voice_parts
from myxtts.config.presets import MODEL_SIZES
from myxtts.errors import ConfigError
from myxtts.models.parts import PARTS
from myxtts.synthesis.decoding import MAKERS
from myxtts.synthesis.litert.layout import can_export
from myxtts.training.stages import STAGES, needed_with, parts_after, stage_named, stages_of
from myxtts.training.stages.spec import StageSpec
from tests.corpus_maker import make_ljspeech
from tests.processes import run_forked
from tests.training_processes import ONE_THREAD

MODELS = [ModelConfig(model_size="tiny", decoder=decoder) for decoder in DECODERS]
models = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.decoder)


@pytest.mark.parametrize("spec", STAGES, ids=lambda spec: f"{spec.name}-{spec.purpose}")
def test_a_stage_has_a_recipe_for_every_size_and_known_parts(spec: StageSpec) -> None:
    assert set(spec.recipes) == set(MODEL_SIZES)
    assert {*spec.requires, *spec.learns} <= set(voice_parts())
    assert not set(spec.requires) & set(spec.learns)
    assert set(spec.separable) <= set(spec.learns) - {spec.purpose}


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=lambda decoder: decoder.name)
def test_a_decoder_has_networks_a_stage_and_a_way_to_speak(decoder: Decoder) -> None:
    stages = stages_of(ModelConfig(model_size="tiny", decoder=decoder.name))

    assert {part for spec in stages for part in spec.learns} == {*CORE_PARTS, *decoder.parts}
    assert stages[-1].purpose == decoder.parts[-1]
    assert set(decoder.parts) <= set(PARTS)
    assert decoder.name in MAKERS
    assert can_export((*CORE_PARTS, *decoder.parts))


def test_every_stage_of_a_decoder_is_of_one_that_there_is() -> None:
    assert {spec.decoder for spec in STAGES} <= {None, *DECODERS}


@models
def test_each_stage_requires_what_the_stages_before_it_learn(model: ModelConfig) -> None:
    learnt: tuple[str, ...] = ()
    for spec in stages_of(model):
        assert set(spec.requires) == set(learnt)
        learnt += spec.learns


@models
def test_stages_are_found_by_name_and_others_are_refused_with_a_suggestion(model: ModelConfig) -> None:
    assert [stage_named(spec.name, model) for spec in stages_of(model)] == list(stages_of(model))
    with pytest.raises(ConfigError, match="--stage 'gtp' is not known") as caught:
        stage_named("gtp", model)
    assert "gpt" in caught.value.hint


@models
def test_a_voice_has_what_all_stages_up_to_the_last_one_learnt(model: ModelConfig) -> None:
    codec, gpt, decoder = stages_of(model)

    assert parts_after(codec, model) == ("dvae",)
    assert parts_after(gpt, model) == ("dvae", "conditioning", "gpt")
    assert parts_after(decoder, model) == ("dvae", "conditioning", "gpt", *model.decoder_parts)


def test_a_part_of_a_voice_needs_what_it_was_trained_with() -> None:
    assert set(needed_with("gpt")) == {"dvae", "conditioning"}
    assert set(needed_with("hifigan")) == {"gpt", "conditioning", "dvae", "speaker_encoder"}
    assert needed_with("dvae") == needed_with("speaker_encoder") == ()


def test_a_stage_that_is_declared_elsewhere_trains_resumes_and_publishes(tmp_path: Path) -> None:
    """A second codec stage, of a module that the package does not know, in the place of the first."""
    corpus = make_ljspeech(tmp_path / "corpus", 6)

    first, then, fewer = (
        run_forked("-m", "tests.contract.declared_stage", str(corpus), str(tmp_path), steps, **ONE_THREAD)
        for steps in ("2", "4", "3")
    )

    assert first.returncode == then.returncode == fewer.returncode == 0, first.stderr + then.stderr + fewer.stderr
    assert "Stage codec continues at step 2 of 4" in then.stderr
    assert "Stage codec: nothing is left to do: 4 steps are done, 3 were asked for" in fewer.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == [1, 2, 3, 4]
    assert all("flatness" in event for event in steps), "a figure of its own"
    assert json.loads((tmp_path / "run" / "voice" / "manifest.json").read_text())


def test_a_decoder_with_a_part_and_a_stage_of_new_names_trains_resumes_publishes_and_speaks(tmp_path: Path) -> None:
    """Declared outside the package, by a line in each table; its model has no stage `decoder`."""
    corpus, module = make_ljspeech(tmp_path / "corpus", 6), "tests.contract.declared_decoder"

    first = run_forked("-m", module, str(corpus), str(tmp_path), "2", **ONE_THREAD)
    then = run_forked("-m", module, str(corpus), str(tmp_path), "4", "tuning", **ONE_THREAD)

    assert first.returncode == then.returncode == 0, first.stderr + then.stderr
    assert "Stage tuning continues at step 2 of 4" in then.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    steps = [(event["stage"], event["step"]) for event in events if event["event"] == "step"]
    assert steps == [(stage, step) for stage in ("codec", "gpt", "tuning") for step in (1, 2)] + [
        ("tuning", 3),
        ("tuning", 4),
    ]
    manifest = json.loads((tmp_path / "run" / "voice" / "manifest.json").read_text())["metadata"]
    assert manifest["parts"] == ["dvae", "conditioning", "gpt", "tones"]
    assert manifest["trained_to"] == ["tuning", 4]
    assert sorted(path.name for path in (tmp_path / "run" / "samples").iterdir())[-1].startswith("tuning-0000004")
