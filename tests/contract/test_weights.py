"""Weights on disk: what is saved comes back, what does not fit is refused by name, vocabularies grow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from myxtts.config.model import DecoderKind, ModelConfig
from myxtts.errors import CheckpointError
from myxtts.models.conditioning import Conditioning
from myxtts.models.gpt import GPT
from myxtts.models.weights import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    assign,
    grow_text_vocabulary,
    load_weights,
    named,
    read_arrays,
    save_arrays,
    save_weights,
)
from myxtts.models.xtts import XTTS
from tests.contract.gpt_cases import TINY, built_gpt

SMALLEST = ModelConfig(
    model_size="tiny",
    gpt_width=16,
    gpt_heads=2,
    gpt_layers=1,
    perceiver_heads=1,
    decoder_width=32,
    dvae_width=16,
    speaker_width=24,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_weights(tmp_path, built_gpt().weights, {"step": 7})
    return tmp_path


def test_saved_weights_come_back_with_their_metadata(saved: Path) -> None:
    other = built_gpt()

    assert load_weights(saved, other.weights) == {"step": 7}
    stored = read_arrays(saved)
    for weight in other.weights:
        np.testing.assert_array_equal(weight.value, stored[weight.path])


@pytest.mark.parametrize(
    ("decoder", "its_parts"), [("hifigan", {"speaker_encoder", "hifigan"}), ("mel", {"mel_decoder"})]
)
def test_all_parts_of_xtts_are_saved_under_different_names(
    tmp_path: Path, decoder: DecoderKind, its_parts: set[str]
) -> None:
    config = replace(SMALLEST, decoder=decoder)
    one, other = XTTS(config), XTTS(config)
    one.save(tmp_path)
    other.load(tmp_path)

    assert {name.split("/")[0] for name in read_arrays(tmp_path)} == {"dvae", "conditioning", "gpt", *its_parts}
    assert len(read_arrays(tmp_path)) == len(one.weights) == len(other.weights)
    for mine, yours in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(mine.value, yours.value)


def test_missing_unknown_and_misshapen_weights_are_named_and_nothing_changes(saved: Path) -> None:
    arrays = read_arrays(saved)
    arrays["gpt/head_norm/gone"] = arrays.pop("gpt/head_norm/gamma")
    arrays["gpt/text_head/bias"] = np.zeros(3, np.float32)
    gpt = built_gpt()
    before = {name: weight.value.numpy() for name, weight in named(gpt.weights).items()}

    with pytest.raises(CheckpointError) as caught:
        assign(arrays, gpt.weights)

    for words in (
        "gpt/head_norm/gamma is missing",
        "gpt/head_norm/gone is not in the model",
        "[3], the model has [30]",
    ):
        assert words in caught.value.problem
    for name, weight in named(gpt.weights).items():
        np.testing.assert_array_equal(weight.value, before[name])


def test_a_damaged_file_is_refused(saved: Path) -> None:
    path = saved / WEIGHTS_FILE
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match="not the file that its manifest describes"):
        read_arrays(saved)


NO_METADATA = '{"version": 1, "sha256": "", "weights": {}, "metadata": []}'


@pytest.mark.parametrize(
    "content", [None, "{", '{"version": 99}', "[]", "[" * 10**5, '{"version": 1, "metadata": {}}', NO_METADATA]
)
def test_a_folder_without_a_readable_manifest_is_refused(saved: Path, content: str | None) -> None:
    if content is None:
        (saved / MANIFEST_FILE).unlink()
    else:
        (saved / MANIFEST_FILE).write_text(content)

    with pytest.raises(CheckpointError, match="manifest"):
        read_arrays(saved)


def test_the_manifest_lists_every_weight_and_its_shape(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST_FILE).read_text())

    assert manifest["weights"]["gpt/block_1/qkv/kernel"] == {"shape": [32, 96], "dtype": "float32"}


def test_a_new_vocabulary_keeps_the_old_tokens_rows(tmp_path: Path) -> None:
    gpt = built_gpt()
    old = {weight.path: weight.value.numpy() for weight in gpt.weights}
    # Token 30 of the new vocabulary is new, token 31 is the old token 5.
    grown = grow_text_vocabulary(old, [*range(30), None, 5])
    larger = GPT(ModelConfig(**{**TINY.__dict__, "text_vocab": 32}))
    larger.build()

    save_arrays(tmp_path, grown)
    load_weights(tmp_path, larger.weights)

    table, head = larger.text_embedding.table.numpy(), larger.text_head.kernel.numpy()
    np.testing.assert_array_equal(table[:30], old["gpt/text_embedding/table"])
    np.testing.assert_array_equal(table[31], table[5])
    np.testing.assert_array_equal(head[:, :30], old["gpt/text_head/kernel"])
    assert np.std(table[30]) == pytest.approx(np.std(table[:30]), rel=0.5)
    with pytest.raises(CheckpointError, match="old token 30"):
        grow_text_vocabulary(old, [30])


def test_small_and_big_have_exactly_coquis_parameters() -> None:
    """12.66 M and 441.0 M in PEERS, conditioning included; 12,662,979 counted on Coqui's own module."""
    small, big = (
        sum(part(ModelConfig(model_size=size)).declared_parameters() for part in (GPT, Conditioning))
        for size in ("small", "big")
    )

    assert small == 12_662_979
    assert big / 1e6 == pytest.approx(441.0, abs=0.05)
