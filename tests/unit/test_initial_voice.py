"""What a run takes from a voice: settings, stages, recipes and weights, decided without TensorFlow."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.cli.flags import defaults_beneath
from myxtts.cli.main import main
from myxtts.config.config import DataConfig, XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.config.model import ModelConfig
from myxtts.config.speaking import Sampling
from myxtts.config.training import FROM_SCRATCH
from myxtts.data.prepare import PreparingStopped
from myxtts.errors import CheckpointError, ConfigError
from myxtts.models.weights import TEXT_WEIGHTS, read_arrays, save_arrays
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice import ALIGNER_FILE, CONFIG_FILE, TOKENIZER_FILE, read_voice_config, voice_manifest
from myxtts.text.tokenizer import train_tokenizer
from myxtts.training.alignment import write_grown
from myxtts.training.initial_voice import begin, check_parts, first_tokenizer, resolved_config, text_rows
from myxtts.training.recipes import length_of, recipe_for, stages_to_run
from myxtts.training.run_folder import RunFolder, refuse_other_configuration
from myxtts.training.stages import CODEC, GPT, HIFIGAN
from tests.corpus_maker import make_ljspeech
from tests.unit.test_extending import PERSIAN, xtts_vocabulary

EVERY_PART = ("dvae", "conditioning", "gpt", "speaker_encoder", "hifigan")
SIZES = {"gpt_layers": 2, "gpt_width": 8, "gpt_heads": 2}


def write_voice(
    folder: Path, parts: tuple[str, ...] = EVERY_PART, *, spare_rows: int = 0, decoder: str = "hifigan", **manifest: Any
) -> Path:
    """A folder as import-xtts writes it, with one small weight for each part beside those of the text."""
    tokenizer = xtts_vocabulary([])
    rows = tokenizer.size + spare_rows
    model = ModelConfig(
        model_size="big",
        text_vocab=rows,
        text_start_token=5,
        text_stop_token=0,
        normed_conditioning=True,
        decoder=decoder,
        **SIZES,
    )
    random = np.random.default_rng(0)
    shapes = {name: (rows,) if name.endswith("bias") else (rows, 8)[:: -1 if axis else 1]
              for name, axis in TEXT_WEIGHTS.items() if "gpt" in parts}  # fmt: skip
    shapes |= {f"{part}/weight": (3,) for part in parts}
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    folder.mkdir()
    XTTSConfig(model=model).to_yaml(folder / CONFIG_FILE)
    tokenizer.save(folder / TOKENIZER_FILE)
    save_arrays(folder, arrays, VoiceManifest(parts=parts, **manifest).to_metadata())
    return folder


def names_to_run(config: XTTSConfig) -> tuple[str, ...]:
    return tuple(spec.name for spec in stages_to_run(config))


@pytest.fixture
def voice(tmp_path: Path) -> Path:
    return write_voice(tmp_path / "xtts")


@pytest.fixture
def persian(tmp_path: Path) -> Path:
    return make_ljspeech(tmp_path / "fa", 2, lines=[f"clip_{n}|{text}" for n, text in enumerate(PERSIAN)])


def test_sizes_front_end_and_parts_come_from_the_voice(voice: Path) -> None:
    config = resolved_config(XTTSConfig(init_from=str(voice), dropout=0.0))

    assert config.model == dataclasses.replace(read_voice_config(voice).model, dropout=0.0)
    assert config.model.gpt_layers == 2
    assert config.model.normed_conditioning
    assert config.data.text_frontend == "bpe"
    assert set(config.training.init_parts) == set(EVERY_PART)
    assert resolved_config(config) == config


def test_a_published_voice_is_fine_tuned_in_stage_gpt_gently_and_without_an_aligner(voice: Path) -> None:
    config = resolved_config(XTTSConfig(init_from=str(voice)))
    recipe = recipe_for(config, GPT)

    assert names_to_run(config) == ("gpt",)
    assert recipe.learning_rate == pytest.approx(5e-6)
    assert recipe.steps == GPT.recipes["big"].steps * GPT.fine_tuning.steps_share
    assert recipe.reference_seconds == 6.0
    assert config.training.alignment_weight == 0.0
    assert (config.training.token_corruption, config.training.speed_perturbation) == (0.0, 0.0)
    assert names_to_run(resolved_config(XTTSConfig(init_from=str(voice), stage="decoder"))) == ("decoder",)
    assert resolved_config(XTTSConfig(init_from=str(voice), alignment_weight=0.3)).training.alignment_weight == 0.3


def test_a_voice_whose_heads_were_aligned_goes_on_with_alignments(tmp_path: Path) -> None:
    voice = write_voice(tmp_path / "mine", alignment_heads=[[1, 0]])

    assert resolved_config(XTTSConfig(init_from=str(voice))).training.alignment_weight == 0.5
    assert defaults_beneath(["--init-from", str(voice)]).training.alignment_weight == 0.5


def test_only_stages_whose_parts_are_missing_run_beside_gpt(tmp_path: Path) -> None:
    codec = resolved_config(XTTSConfig(init_from=str(write_voice(tmp_path / "codec", ("dvae",)))))
    speaking = resolved_config(
        XTTSConfig(init_from=str(write_voice(tmp_path / "gpt", ("dvae", "conditioning", "gpt"))))
    )

    assert names_to_run(codec) == names_to_run(speaking) == ("gpt", "decoder")
    # What the voice did not bring is learnt from scratch, as fast as ever.
    assert recipe_for(codec, GPT).learning_rate == GPT.recipes["big"].learning_rate
    assert recipe_for(speaking, GPT).learning_rate == pytest.approx(5e-6)
    assert recipe_for(speaking, HIFIGAN).learning_rate == HIFIGAN.recipes["big"].learning_rate


def test_a_gpt_that_the_voice_did_not_bring_learns_as_from_scratch(tmp_path: Path, voice: Path) -> None:
    def learning(config: XTTSConfig) -> dict[str, float]:
        return {name: getattr(config.training, name) for name in FROM_SCRATCH}

    codec_alone = write_voice(tmp_path / "codec", ("dvae",))
    flags = ["--init-from", str(voice), "--init-parts", "dvae"]

    assert learning(resolved_config(XTTSConfig(init_from=str(codec_alone)))) == FROM_SCRATCH
    assert learning(resolved_config(XTTSConfig(init_from=str(voice), init_parts=("dvae",)))) == FROM_SCRATCH
    assert learning(defaults_beneath(flags)) == learning(defaults_beneath([*flags[:2], "--init_parts", "dvae"]))
    assert learning(defaults_beneath(flags)) == FROM_SCRATCH
    assert learning(defaults_beneath(flags[:2])) == dict.fromkeys(FROM_SCRATCH, 0.0)
    assert (
        learning(resolved_config(XTTSConfig(init_from=str(voice), init_parts=("dvae",), concatenation=0.2)))[
            "concatenation"
        ]
        == 0.2
    )


def test_a_given_learning_rate_wins(voice: Path) -> None:
    assert recipe_for(resolved_config(XTTSConfig(init_from=str(voice), learning_rate=1e-4)), GPT).learning_rate == 1e-4


def test_sizes_that_were_given_and_differ_are_named(voice: Path) -> None:
    beneath = defaults_beneath(["--init-from", str(voice)])
    other = dataclasses.replace(beneath, model=dataclasses.replace(beneath.model, gpt_layers=6))

    with pytest.raises(ConfigError, match=r"xtts: gpt_layers is 6 here and 2 in the voice\n"):
        resolved_config(other)
    with pytest.raises(ConfigError, match="model_size is tiny here and big in the voice"):
        resolved_config(defaults_beneath(["--init-from", str(voice), "--model-size", "tiny"]))
    with pytest.raises(ConfigError, match=r"model_size is tiny here and big in the voice; .* in all\)"):
        resolved_config(XTTSConfig(init_from=str(voice), model_size="tiny"))
    assert resolved_config(beneath).model.gpt_layers == 2


def test_another_front_end_is_refused(voice: Path) -> None:
    with pytest.raises(ConfigError, match=r"--text-frontend is characters, and .* reads bpe"):
        resolved_config(XTTSConfig(init_from=str(voice), text_frontend="characters"))


def test_a_front_end_that_was_given_is_refused_also_where_it_is_the_default(
    voice: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["train", "--init-from", str(voice), "--dry-run"]

    assert main([*flags, "--text-frontend", "phonemes"]) == 1
    assert f"--text-frontend is phonemes, and {voice} reads bpe" in capsys.readouterr().err
    assert main(flags) == 0


def test_parts_that_the_voice_lacks_or_that_belong_together_are_refused(tmp_path: Path) -> None:
    voice = write_voice(tmp_path / "voice", ("dvae", "conditioning", "gpt"))

    with pytest.raises(ConfigError, match=r"--init-parts names hifigan, and .* has dvae, conditioning, gpt"):
        resolved_config(XTTSConfig(init_from=str(voice), init_parts=("hifigan",)))
    with pytest.raises(ConfigError, match="conditioning of a voice is of no use without its dvae"):
        resolved_config(XTTSConfig(init_from=str(voice), init_parts=("gpt", "conditioning")))
    assert resolved_config(XTTSConfig(init_from=str(voice), init_parts=("dvae",))).training.init_parts == ("dvae",)


def test_a_mel_decoder_comes_along_and_is_fine_tuned_after_the_gpt(tmp_path: Path) -> None:
    parts = ("dvae", "conditioning", "gpt", "mel_decoder")
    config = resolved_config(XTTSConfig(init_from=str(write_voice(tmp_path / "tiny", parts, decoder="mel"))))

    assert config.training.init_parts == parts
    assert names_to_run(config) == ("gpt", "decoder")


@pytest.mark.parametrize(
    ("batches", "passes"),
    [(3, 40), (1_000_000, 3)],
    ids=["a minute is heard forty times", "much speech is heard three times"],
)
def test_the_length_of_a_fine_tuning_follows_the_amount_of_speech(voice: Path, batches: int, passes: int) -> None:
    config = resolved_config(XTTSConfig(init_from=str(voice)))

    assert length_of(config, GPT, batches).steps == passes * batches
    assert length_of(config, GPT, 5000).steps == recipe_for(config, GPT).steps


def test_a_stage_whose_foundation_is_missing_is_refused() -> None:
    with pytest.raises(CheckpointError, match="stage decoder needs conditioning, gpt, and v has dvae"):
        check_parts(HIFIGAN, ["dvae"], "v")
    check_parts(CODEC, [], "v")
    check_parts(HIFIGAN, ["dvae", "conditioning", "gpt"], "v")


@pytest.mark.parametrize(
    ("setting", "flag"), [({"extra_tokens": 5}, "--extra-tokens"), ({"init_parts": ("dvae",)}, "--init-parts")]
)
def test_what_belongs_to_a_voice_is_refused_without_one(setting: dict[str, object], flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} was given without --init-from"):
        XTTSConfig(**setting)


def test_a_path_without_a_voice_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        defaults_beneath(["--init-from", str(tmp_path / "nowhere")])


def test_a_run_cannot_start_from_itself(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_voice(tmp_path / "run" / "voice")

    with pytest.raises(ConfigError, match="is the run's own voice"):
        resolved_config(XTTSConfig(init_from=str(tmp_path / "run"), run_dir=str(tmp_path / "run")))


def test_a_continued_run_refuses_another_voice(voice: Path, tmp_path: Path) -> None:
    config = resolved_config(XTTSConfig(init_from=str(voice)))
    other = resolved_config(XTTSConfig(init_from=str(write_voice(tmp_path / "other"))))

    refuse_other_configuration(as_plain_values(config), config, tmp_path)
    with pytest.raises(CheckpointError, match=r"init_from: .*xtts' in the run, .*other' now"):
        refuse_other_configuration(as_plain_values(config), other, tmp_path)


def test_asked_to_stop_a_run_does_not_grow_its_vocabulary_first(tmp_path: Path, persian: Path) -> None:
    voice = write_voice(tmp_path / "xtts")
    config = resolved_config(XTTSConfig(init_from=str(voice), train_data=str(persian), language="fa"))

    with pytest.raises(PreparingStopped):
        first_tokenizer(config, RunFolder(tmp_path / "run"), lambda: True)


@pytest.mark.parametrize("spare_rows", [0, 3, 200])
def test_a_new_language_grows_the_text_weights_and_old_rows_stay_bit_for_bit(
    tmp_path: Path, persian: Path, spare_rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    voice = write_voice(tmp_path / "xtts", spare_rows=spare_rows)
    old_size = xtts_vocabulary([]).size
    folder = RunFolder(tmp_path / "run")
    config = resolved_config(XTTSConfig(init_from=str(voice), train_data=str(persian), language="fa"))
    tokenizer = first_tokenizer(config, folder)
    assert tokenizer is not None
    rows = text_rows(config, tokenizer)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, text_vocab=rows))

    begin(config, folder, tokenizer)

    assert tokenizer.size > old_size
    assert rows == max(tokenizer.size, old_size + spare_rows)
    old, new = read_arrays(voice), read_arrays(folder.voice)
    assert old.keys() == new.keys()
    for name in old:
        axis = TEXT_WEIGHTS.get(name)
        kept = new[name] if axis is None else np.take(new[name], range(old_size), axis)
        np.testing.assert_array_equal(kept, old[name] if axis is None else np.take(old[name], range(old_size), axis))
        if axis is not None:
            assert new[name].shape[axis] == rows
    assert "[fa]" in caplog.text
    assert f"{old_size} -> {tokenizer.size} tokens" in caplog.text
    assert read_voice_config(folder.voice).model.text_vocab == rows


def test_what_a_voice_was_trained_on_before_is_not_the_runs_corpus(tmp_path: Path) -> None:
    voice = write_voice(tmp_path / "before", trained_on=("its own clips",), sampling=Sampling(temperature=0.7))
    folder = RunFolder(tmp_path / "run")

    begin(resolved_config(XTTSConfig(init_from=str(voice))), folder, xtts_vocabulary([]))

    manifest = voice_manifest(folder.voice)
    assert (manifest.sampling, manifest.trained_on) == (Sampling(temperature=0.7), ())


def test_the_gains_of_a_part_come_with_the_part(tmp_path: Path) -> None:
    gains = {"dvae": [1.1, 1.0], "mel_decoder": [1.5, 1.0]}
    voice = write_voice(tmp_path / "before", (*EVERY_PART, "mel_decoder"), postfilter=gains)
    folder = RunFolder(tmp_path / "run")

    begin(resolved_config(XTTSConfig(init_from=str(voice), init_parts=("dvae",))), folder, xtts_vocabulary([]))

    assert voice_manifest(folder.voice).postfilter == {"dvae": (1.1, 1.0)}


def test_an_aligner_of_one_vocabulary_serves_another(tmp_path: Path) -> None:
    old = train_tokenizer("characters", [("hello سلام", "fa")])
    new = train_tokenizer("characters", [("hello سلام", "fa"), ("été", "fr")])
    labels = int(old.spoken_labels().max()) + 1
    head = np.random.default_rng(0).normal(size=(2, labels + 1)).astype(np.float32)
    np.savez(tmp_path / "old.npz", **{"0000": np.ones((3, 4), np.float32), "0001": head})

    write_grown(tmp_path / "new.npz", tmp_path / "old.npz", old, new)

    with np.load(tmp_path / "new.npz") as stored:
        body, grown = stored["0000"], stored["0001"]
    assert np.array_equal(body, np.ones((3, 4)))
    assert grown.shape == (2, int(new.spoken_labels().max()) + 2)
    assert np.array_equal(grown[:, -1], head[:, -1]), "the blank stays the last label"
    sounds = [(token, label) for token, label in zip(new.tokens(), new.spoken_labels(), strict=True) if label >= 0]
    was = dict(zip(old.tokens(), old.spoken_labels(), strict=True))
    assert any(was.get(token, label) != label for token, label in sounds), "labels have moved"
    for token, label in sounds:
        expected = head[:, was[token]] if token in was else head[:, :labels].min(-1)
        assert np.array_equal(grown[:, label], expected), token


def test_a_damaged_aligner_is_left_behind(tmp_path: Path) -> None:
    voice, folder = write_voice(tmp_path / "before"), RunFolder(tmp_path / "run")
    (voice / ALIGNER_FILE).write_bytes(b"no archive")

    begin(resolved_config(XTTSConfig(init_from=str(voice))), folder, xtts_vocabulary([]))

    assert not (folder.voice / ALIGNER_FILE).exists()


def test_a_run_that_has_begun_stands_on_its_own_voice(voice: Path, persian: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    config = resolved_config(XTTSConfig(init_from=str(voice), train_data=str(persian), language="fa"))
    tokenizer = first_tokenizer(config, folder)
    assert tokenizer is not None
    begin(config, folder, tokenizer)
    learnt = {name: value + 1 for name, value in read_arrays(folder.voice).items()}
    save_arrays(folder.voice, learnt, {"parts": list(EVERY_PART)})
    (persian / "metadata.csv").write_text("clip_0|غ ظ ض\nclip_1|ث\n", encoding="utf-8")

    again = first_tokenizer(config, folder)
    begin(config, folder, tokenizer)

    assert again is not None
    assert again.tokens() == tokenizer.tokens()
    np.testing.assert_array_equal(read_arrays(folder.voice)["gpt/weight"], learnt["gpt/weight"])


def test_a_run_that_has_begun_does_not_need_the_voice_again(voice: Path, persian: Path, tmp_path: Path) -> None:
    flags = ["--init-from", str(voice), "--run-dir", str(tmp_path / "run")]
    folder = RunFolder(tmp_path / "run")
    config = dataclasses.replace(
        defaults_beneath(flags), data=dataclasses.replace(DataConfig(), train_data=str(persian), language="fa")
    )
    first = resolved_config(config)
    tokenizer = first_tokenizer(first, folder)
    assert tokenizer is not None
    rows = text_rows(first, tokenizer)
    first = dataclasses.replace(first, model=dataclasses.replace(first.model, text_vocab=rows))
    folder.path.mkdir()
    first.to_yaml(folder.config)
    begin(first, folder, tokenizer)
    shutil.rmtree(voice)

    again = resolved_config(defaults_beneath(flags), over_voice=True)

    assert (again.model, again.data.text_frontend) == (first.model, first.data.text_frontend)
    assert (again.training.init_parts, again.training.alignment_weight) == (first.training.init_parts, 0.0)
    refuse_other_configuration(as_plain_values(first), dataclasses.replace(again, data=first.data), folder.path)
    assert text_rows(again, tokenizer) == rows
    with pytest.raises(CheckpointError, match="xtts does not exist"):
        defaults_beneath([*flags, "--fresh"])


def test_checkpoints_without_a_voice_are_not_begun_again(voice: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.checkpoints("gpt").mkdir(parents=True)

    with pytest.raises(CheckpointError, match="has checkpoints of stage gpt and no whole voice folder"):
        begin(resolved_config(XTTSConfig(init_from=str(voice))), folder, train_tokenizer("characters", []))
