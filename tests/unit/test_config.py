"""Settings: flat and nested, presets, YAML round trip, precedence, and errors that name the setting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.cli.flags import defaults_beneath
from myxtts.config.config import DataConfig, ModelConfig, TrainingConfig, XTTSConfig
from myxtts.config.presets import MODEL_SIZES
from myxtts.errors import ConfigError
from tests.limits import no_more_memory_than


def test_a_gpt_from_scratch_is_regularised() -> None:
    scratch = XTTSConfig().training

    assert min(scratch.token_corruption, scratch.concatenation, scratch.speed_perturbation) > 0.0
    assert XTTSConfig(token_corruption=0.0).training.token_corruption == 0.0
    with pytest.raises(ConfigError, match=r"setting speed_perturbation is 0\.5"):
        XTTSConfig(speed_perturbation=0.5)
    with pytest.raises(ConfigError, match=r"setting concatenation is 1\.5"):
        XTTSConfig(concatenation=1.5)


def test_the_documented_ways_to_build_one_agree() -> None:
    nested = XTTSConfig(training=TrainingConfig(multi_gpu=True, visible_gpus="0,1"))
    flat = XTTSConfig(multi_gpu=True, visible_gpus="0,1")

    assert nested == flat


def test_defaults_are_the_documented_ones() -> None:
    config = XTTSConfig()

    assert (config.training.multi_gpu, config.training.visible_gpus) == (False, None)
    assert (config.data.buffer_size, config.data.model_start_delay) == (50, 2.0)
    assert (config.training.data_gpu_memory, config.training.model_gpu_memory) == (8192, 16384)


@pytest.mark.parametrize("size", sorted(MODEL_SIZES))
def test_a_preset_fills_every_size_and_an_explicit_one_wins(size: str) -> None:
    config = XTTSConfig(model_size=size, gpt_layers=3)

    assert config.model.gpt_width == MODEL_SIZES[size]["gpt_width"]
    assert config.model.gpt_layers == 3
    assert None not in vars(ModelConfig(model_size=size)).values()  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", ["صدا", "a\x85b", " - : #"])
def test_a_resolved_configuration_loads_back_equal(tmp_path: Path, folder: str) -> None:
    config = XTTSConfig(
        model_size="tiny", data_gpu=0, model_gpu="1,2", train_data=folder, optimization_level="enhanced"
    )

    config.to_yaml(tmp_path / "config.yaml")

    assert XTTSConfig.from_yaml(tmp_path / "config.yaml") == config


@given(
    st.builds(
        DataConfig,
        batch_size=st.none() | st.integers(1, 512),
        batch_seconds=st.floats(1, 1000),
        buffer_size=st.integers(1, 500),
        train_data=st.none() | st.text(max_size=20),
        data_gpu=st.none() | st.integers(0, 9),
        trim_silence=st.booleans(),
    )
)
def test_any_valid_data_section_survives_yaml(tmp_path_factory: pytest.TempPathFactory, data: DataConfig) -> None:
    path = tmp_path_factory.mktemp("yaml") / "config.yaml"
    config = XTTSConfig(data=data)

    config.to_yaml(path)

    assert XTTSConfig.from_yaml(path) == config


def test_a_configuration_that_finds_no_room_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    XTTSConfig(seed=1).to_yaml(path)
    (tmp_path / f".config.yaml.{os.getpid()}.part").symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left"):
        XTTSConfig(seed=2).to_yaml(path)

    assert XTTSConfig.from_yaml(path).training.seed == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("bufer_size: 5", "'bufer_size' is not known", "did you mean buffer_size"),
        ("training: {multi_gpus: true}", "setting of training 'multi_gpus' is not known", "did you mean multi_gpu"),
        ("training: {buffer_size: 3}", "setting of training 'buffer_size'", "known"),
        ("batch_size: many", "batch_size is 'many' (str), must be a whole number or null", "--batch-size"),
        ("multi_gpu: 1", "multi_gpu is 1 (int), must be true or false", "--multi-gpu"),
        ("decoder: wavenet", "setting decoder 'wavenet' is not known", "known: hifigan, mel"),
        ("init_parts: [dvae, gtp]", "--init-parts 'gtp' is not known", "did you mean gpt"),
        ("training: 7", "'training' is 7, must hold settings", "indent"),
        ("- a\n- b", "holds a list, not settings", "batch_size: 16"),
        ("a: [1, 2", "is not YAML at line", "batch_size: 16"),
        ("buffer_size: 0", "--buffer-size is 0, must be at least 1", "start at 50"),
        ("model_start_delay: -1", "--model-start-delay is -1.0", "2.0 seconds"),
        ("visible_gpus: '0,x'", "--visible-gpus is '0,x'", '"0,1"'),
        ("data_gpu: -1\nmodel_gpu: 1", "--data-gpu is -1", "from 0"),
        ("model_gpu: '1,1'", "names a GPU twice", "once"),
        ("gpt_width: 190", "gpt_width is 190, not a multiple of gpt_heads 8", "64 a head"),
        ("enable_memory_isolation: true", "without --data-gpu and --model-gpu", "--data-gpu 0 --model-gpu 1"),
        ("multi_gpu: true\ndata_gpu: 0\nmodel_gpu: 1", "--multi-gpu was given beside --data-gpu", "--model-gpu 1,2"),
        ("grad_accum: 0", "--grad-accum is 0", "1 steps"),
        ("gpt_layers: few", "setting gpt_layers is 'few' (str), must be a whole number", "docs/settings.md"),
        ("beta_2: 1", "setting beta_2 is 1.0, must be between 0 and 0.99999", "usual"),
        ("ema: -0.1", "setting ema is -0.1", "0 keeps no average"),
        ("clip_norm: 0", "setting clip_norm is 0.0", "clips nothing"),
        ("warmup_steps: -1", "setting warmup_steps is -1, must be at least 0", "peak"),
        ("model_size: huge", "model_size is 'huge'", "--model-size"),
        ("learning_rate: 1e-4 and more", "learning_rate is '1e-4 and more' (str), must be a number", "--learning-rate"),
        ("max_steps: 1e3", "max_steps is '1e3' (str), must be a whole number", "--max-steps"),
        ("run_dir: 7", "run_dir is 7 (int), must be text", "--run-dir"),
        ("visible_gpus: true", "visible_gpus is True (bool), must be text or null", "--visible-gpus"),
        ("visible_gpus: -1", "--visible-gpus is '-1'", '"0,1"'),
        ("batch_seconds: .inf", "--batch-seconds is inf, must be a finite number", "120 fits"),
        ("max_clip_seconds: .nan", "--max-clip-seconds is nan, must be a finite number", "0.4 and 20"),
        ("max_clip_seconds: .inf", "--max-clip-seconds is inf, must be a finite number", "0.4 and 20"),
        ("min_clip_seconds: 2\nmax_clip_seconds: 2", "--max-clip-seconds is 2.0, not above", "0.4 and 20"),
        ("model_start_delay: .inf", "--model-start-delay is inf, must be a finite number", "2.0 seconds"),
        ("dropout: .nan", "setting dropout is nan, must be a finite number", "0.1"),
    ],
)
def test_a_bad_file_is_refused_with_the_setting_and_the_way_out(
    tmp_path: Path, text: str, problem: str, hint: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as error:
        XTTSConfig.from_yaml(path)

    assert problem in error.value.problem
    assert hint in error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "seed: 1\nbuffer_size: 3\nseed: 2",
        "training:\n  seed: 1\n  keep: 2\n  seed: 2",
        "training: {seed: 1}\nseed: 2",
        "seed: 2\ntraining: {seed: 1}",
    ],
)
def test_a_setting_that_stands_twice_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"setting seed stands twice in .*config\.yaml"):
        XTTSConfig.from_yaml(path)


def test_a_section_that_stands_twice_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("training: {seed: 1}\ntraining: {keep: 2}", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"setting training stands twice in .*, at line 2"):
        XTTSConfig.from_yaml(path)


@pytest.mark.parametrize("written", ["1e-4", "1E-4", "+1.e-4", "1.0e-4", "0.0001", ".1e-3", "100e-6"])
def test_a_rate_may_be_written_as_people_write_it(tmp_path: Path, written: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"learning_rate: {written}\nbatch_seconds: 1e2\nrun_dir: 1e2\n", encoding="utf-8")

    config = XTTSConfig.from_yaml(path)

    assert config.training.learning_rate == pytest.approx(1e-4)
    assert (config.data.batch_seconds, config.training.run_dir) == (100.0, "1e2")


def test_one_visible_gpu_may_be_written_as_a_number(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("visible_gpus: 0\n", encoding="utf-8")

    assert XTTSConfig.from_yaml(path) == XTTSConfig(visible_gpus="0")


def test_a_missing_and_a_binary_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")

    with pytest.raises(ConfigError, match="does not exist"):
        XTTSConfig.from_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        XTTSConfig.from_yaml(tmp_path / "binary.yaml")


def test_an_unknown_setting_in_code_is_refused_like_one_in_a_file() -> None:
    with pytest.raises(ConfigError, match="'mutli_gpu' is not known"):
        XTTSConfig(mutli_gpu=True)
    with pytest.raises(ConfigError, match="given both flat and inside"):
        XTTSConfig(data=DataConfig(), buffer_size=3)


def test_flags_beat_yaml_and_yaml_beats_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model_size: tiny\ngpt_layers: 5\nbuffer_size: 7\n", encoding="utf-8")

    from_yaml = defaults_beneath(["--config", str(path)])
    from_flag = defaults_beneath(["--config", str(path), "--model-size", "small"])

    assert (from_yaml.model.gpt_width, from_yaml.model.gpt_layers, from_yaml.data.buffer_size) == (192, 5, 7)
    assert (from_flag.model.gpt_width, from_flag.model.gpt_layers) == (256, 5)


@pytest.mark.parametrize("flags", [["--model_size", "tiny"], ["--model_size=tiny"]])
def test_a_preset_named_with_an_underscore_is_the_same_preset(flags: list[str]) -> None:
    assert defaults_beneath(flags).model == ModelConfig(model_size="tiny")
    assert defaults_beneath(["--optimization_level", "enhanced"]).training.jit_compile is True


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_no_generator_takes_is_refused_by_name(seed: int) -> None:
    with pytest.raises(ConfigError, match=f"--seed is {seed}"):
        XTTSConfig(seed=seed)


def test_an_optimization_level_sets_what_was_not_given() -> None:
    assert XTTSConfig(optimization_level="experimental").training.mixed_precision is True
    assert XTTSConfig(optimization_level="experimental", mixed_precision=False).training.mixed_precision is False
    assert XTTSConfig().training.jit_compile is False


def doubled(levels: int) -> str:
    """Nine of the level before in each level: 300 bytes that stand for 9 to the power of `levels`."""
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels + 1)]
    return "\n".join([*lines, f"seed: *a{levels}"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (doubled(12), "has an alias at line 2"),
        ("data: &d {language: fa}\nmodel:\n  <<: *d\n", "has an alias at line 3"),
        ("seed: &s [*s]", "has an alias at line 1"),
        ("seed: " + "[" * 30_000, "nested more than 8 levels deep at line 1"),
        ("\n".join(" " * n + "a:" for n in range(200)), "nested more than 8 levels deep"),
        ("seed: " + "1" * 40_000, "has more than 32768 bytes"),
        ("seed: " + "9" * 5000, "is not YAML"),
        ("seed: 0x_", "is not YAML"),
        ("seed: 2001-99-99", "is not YAML"),
        ("seed: 0x" + "f" * 30_000, "a number of 120000 bits"),
        ("learning_rate: 0x" + "f" * 30_000, "a number of 120000 bits"),
        ("0x" + "f" * 1000 + ": 1", "a number of 4000 bits"),
        ("training: {0x" + "f" * 1000 + ": 1}", "a number of 4000 bits"),
        ("training: [" + "1," * 15_000 + "]", "must hold settings"),
        ("x" * 1000 + ": 1", "is not known"),
        ("seed: " + "x" * 30_000, "must be a whole number"),
        ("learning_rate: '" + "1" * 30_000 + "'", "must be a number"),
        ('"\\e[31m": 1', r"'\\x1b\[31m' is not known"),
        ('"\\e": 1\n"\\e": 2', r"'\\x1b' stands twice"),
    ],
)
def test_yaml_that_grows_when_it_is_read_is_refused_in_a_line(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="utf-8")

    with no_more_memory_than(300 * 2**20), pytest.raises(ConfigError, match=words) as caught:
        XTTSConfig.from_yaml(path)

    assert len(caught.value.problem) < 400
    assert caught.value.problem.isprintable()
