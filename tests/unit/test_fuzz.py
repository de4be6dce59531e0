"""The deterministic part of `python -m tests.fuzz`, inputs by their structure, and cases that it has found."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from myxtts.config.config import XTTSConfig
from myxtts.config.model import ModelConfig
from myxtts.data.prepare import prepare
from myxtts.data.prepared import MANIFEST, REPORT, TOKENIZER
from myxtts.errors import CheckpointError, ConfigError, DamagedError, DataError, MyXTTSError
from myxtts.evaluation.phones import PhoneRecogniser, read_ipa
from myxtts.models.coqui.folder import sampling_of
from myxtts.models.parameter_counts import count_of
from myxtts.models.weights import WeightsManifest, save_arrays
from myxtts.monitoring.events import EventLog
from myxtts.monitoring.parsing import event_of
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice_sizes import refuse_other_sizes
from myxtts.text.tokenizer import load_tokenizer, tokenizer_from_json, train_tokenizer
from tests.corpus_maker import folder_digest, make_ljspeech, settings
from tests.fuzz.__main__ import Fuzzer
from tests.fuzz.targets import TARGETS
from tests.limits import no_file_larger_than

INPUTS_EACH = 12


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_inputs_are_read_or_refused_in_bounded_time_and_memory(
    target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    fuzzer = Fuzzer(tmp_path, 1, [target])

    for number in range(INPUTS_EACH):
        fuzzer.one(number)

    assert fuzzer.found.failures == []
    assert fuzzer.found.inputs == INPUTS_EACH


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
TOKENIZER_KEYS = ["format", "version", "frontend", "languages", "symbols", "bpe", "model"]
MANIFEST_KEYS = ["parts", "format_version", "trained_to", "sampling", "languages", "postfilter", "alignment_heads"]


@examples(max_examples=60)
@given(st.dictionaries(st.sampled_from(TOKENIZER_KEYS), JSON | st.just("myxtts-tokenizer") | st.just(1)))
def test_any_vocabulary_of_the_right_keys_is_read_or_refused(content: dict[str, Any]) -> None:
    try:
        tokenizer_from_json(content)
    except MyXTTSError as error:
        assert error.hint


@examples(max_examples=60)
@given(st.dictionaries(st.sampled_from(MANIFEST_KEYS), JSON))
def test_any_metadata_of_a_voice_is_read_or_refused(content: dict[str, Any]) -> None:
    try:
        VoiceManifest.from_metadata(content, Path("manifest.json"))
    except MyXTTSError as error:
        assert error.hint


@examples(max_examples=60)
@given(st.fixed_dictionaries({"event": st.sampled_from(["step", "window", "memory", "run_end"]), "time": JSON}), JSON)
def test_any_event_is_read_or_left_out(known: dict[str, Any], more: Any) -> None:
    event_of({**known, "stage": more, "step": more, "devices": more, "loss": more})


def write_vocabulary(folder: Path, **changes: Any) -> Path:
    content = train_tokenizer("characters", [("hello", "en")]).as_json() | changes
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "tokenizer.json"


@pytest.mark.parametrize("symbols", [[1, 2], "abc", None, [["a"]]])
def test_a_vocabulary_whose_symbols_are_no_texts_is_refused(symbols: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="symbols"):
        load_tokenizer(write_vocabulary(tmp_path, symbols=symbols))


def test_a_vocabulary_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("[" * 100_000, encoding="utf-8")

    with pytest.raises(ConfigError, match="not JSON"):
        load_tokenizer(path)


def test_phonemes_that_are_no_utf_8_are_refused(tmp_path: Path) -> None:
    (tmp_path / "phonemes.csv").write_bytes(b"clip_0|h\xff")

    with pytest.raises(DataError, match=r"phonemes\.csv cannot be read"):
        read_ipa(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", b"no archive"])
def test_a_damaged_phone_recogniser_is_known_as_such(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "phones.npz").write_bytes(content)

    with pytest.raises(DamagedError, match="damaged"):
        PhoneRecogniser.load(tmp_path / "phones.npz")


@pytest.mark.parametrize("name", [MANIFEST, REPORT, TOKENIZER])
def test_a_flipped_bit_in_the_small_files_of_a_prepared_corpus_prepares_it_again(name: str, tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[0.2] * 2)
    config = settings(tmp_path, min_clip_seconds=0.1)
    prepared = prepare(corpus, config, workers=1)
    whole, path = folder_digest(prepared.path), prepared.path / name
    content = bytearray(path.read_bytes())

    for place in range(0, len(content), max(1, len(content) // 7)):
        content[place] ^= 1
        path.write_bytes(content)
        content[place] ^= 1
        again = prepare(corpus, config, workers=1)
        assert folder_digest(again.path) == whole


SIZES: dict[str, Any] = {"text_vocab": 77, "max_text_tokens": 99, "max_audio_tokens": 101, "gpt_layers": 1}


def gpt_of(width: int, **sizes: int) -> ModelConfig:
    return XTTSConfig(model_size="tiny", gpt_width=width, gpt_heads=2, **{**SIZES, **sizes}).model


def shapes_of(width: int) -> dict[str, tuple[int, ...]]:
    """The weights that tell sizes, and all others as one."""
    telling = {
        "gpt/text_embedding/table": (77, width),
        "gpt/text_position/table": (101, width),
        "gpt/audio_position/table": (104, width),
        "gpt/block_1/qkv/kernel": (width, 3 * width),
    }
    others = count_of("gpt", gpt_of(width)).all - sum(rows * columns for rows, columns in telling.values())
    return {**telling, "gpt/others": (others,)}


def test_settings_that_ask_for_a_larger_network_than_the_weights_are_refused(tmp_path: Path) -> None:
    shapes = shapes_of(32)
    save_arrays(tmp_path, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    stored = WeightsManifest("", shapes, {})

    refuse_other_sizes(gpt_of(32), ["gpt"], stored, tmp_path)
    for config, setting in ((gpt_of(2**20), "gpt_width 1048576"), (gpt_of(32, gpt_layers=999), "gpt_layers 999")):
        with pytest.raises(CheckpointError, match=setting):
            refuse_other_sizes(config, ["gpt"], stored, tmp_path)
    with pytest.raises(CheckpointError, match=r"gpt has [\d,]+ weights by config.yaml, and [\d,]+ are stored"):
        refuse_other_sizes(gpt_of(32, audio_codes=10**9), ["gpt"], stored, tmp_path)


@pytest.mark.parametrize("setting", ["gpt_layers", "conditioning_layers", "perceiver_layers", "mel_frame_blocks"])
def test_no_file_asks_for_a_network_of_a_billion_layers(tmp_path: Path, setting: str) -> None:
    (tmp_path / "config.yaml").write_text(f"model:\n  model_size: tiny\n  {setting}: 1000000000\n")

    with pytest.raises(ConfigError, match="1000000000, must be between 0 and 1000"):
        XTTSConfig.from_yaml(tmp_path / "config.yaml")


def test_a_manifest_that_names_more_weights_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path, {"gpt/a": np.zeros(3, np.float32)})

    with pytest.raises(CheckpointError, match="no room for them"):
        refuse_other_sizes(gpt_of(2**20), ["gpt"], WeightsManifest("", shapes_of(2**20), {}), tmp_path)


def test_an_event_log_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")

    with pytest.raises(MyXTTSError, match=r"events\.jsonl cannot be written"):
        EventLog(tmp_path / "run" / "events.jsonl")


def test_a_full_disk_loses_events_and_not_the_run(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as events, no_file_larger_than(10):
        events.write("run_end", reason="finished", message="x" * 100)


@pytest.mark.parametrize("top_k", ["Infinity", "NaN", "1e999"])
def test_a_published_config_with_a_number_that_is_not_finite_is_refused(top_k: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"top_k": {top_k}}}', encoding="utf-8")

    with pytest.raises(ConfigError, match="top_k"):
        sampling_of(tmp_path)


def test_a_byte_pair_vocabulary_at_which_its_library_panics_is_refused(tmp_path: Path) -> None:
    # Found by the fuzzer: a prefix that is longer than the pieces that it stands before.
    path = tmp_path / "tokenizer.json"
    train_tokenizer("bpe", [("hello there, how are you", "en")], 300).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["bpe"]["model"]["continuing_subword_prefix"] = "four"

    with pytest.raises(ConfigError, match="byte-pair vocabulary is damaged"):
        tokenizer_from_json(content)
