"""The manifest of a voice: read strictly, back as it was written, and migrated where version 0.1 wrote it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from myxtts.config.speaking import Sampling
from myxtts.errors import CheckpointError
from myxtts.models.weights import MANIFEST_FILE
from myxtts.synthesis.manifest import FORMAT_VERSION, VERSION_KEY, VoiceManifest
from myxtts.synthesis.voice import voice_manifest

EARLIER = Path(__file__).parent.parent / "fixtures" / "v0_1"
PATH = Path("mine") / MANIFEST_FILE
WHOLE = VoiceManifest(
    parts=("dvae", "gpt"),
    languages=("en", "fa"),
    longest_text_tokens=60,
    reference_seconds=1.5,
    alignment_heads=((1, 0), (2, 0)),
    classifier_free_guidance=True,
    postfilter={"dvae": (1.5, 1.0)},
    sampling=Sampling(temperature=0.75, top_k=9),
    trained_to=("gpt", 100),
    trained_on=("a clip list",),
    trained_on_all_clips=False,
    source="XTTS-v2",
    normed_conditioning=True,
)


def read(metadata: dict[str, Any]) -> VoiceManifest:
    return VoiceManifest.from_metadata(json.loads(json.dumps(metadata)), PATH)


def test_every_field_comes_back_from_json_as_it_was() -> None:
    defaults = VoiceManifest()
    for field in dataclasses.fields(WHOLE):
        assert getattr(WHOLE, field.name) != getattr(defaults, field.name), f"{field.name} is not tested"

    assert read(WHOLE.to_metadata()) == WHOLE
    assert read(defaults.to_metadata()) == defaults


def test_a_key_that_is_not_known_is_named_with_the_file_and_the_closest_one() -> None:
    with pytest.raises(CheckpointError, match=r"mine/manifest\.json has a key 'lenguages'") as caught:
        read(WHOLE.to_metadata() | {"lenguages": ["en"]})
    assert "did you mean languages?" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parts", "gpt"),
        ("parts", None),
        ("languages", ["en", 1]),
        ("longest_text_tokens", 60.5),
        ("longest_text_tokens", True),
        ("reference_seconds", "6"),
        ("alignment_heads", [[1]]),
        ("alignment_heads", [["a", 0]]),
        ("classifier_free_guidance", 1),
        ("postfilter", [[1.0]]),
        ("postfilter", {"dvae": 1.0}),
        ("sampling", {"temperature": "hot"}),
        ("sampling", {"warmth": 1.0}),
        ("sampling", {"temperature": -1.0}),
        ("trained_to", ["gpt"]),
        ("trained_to", ["gpt", "100"]),
        ("trained_on", {"a": 1}),
        ("trained_on_all_clips", "no"),
        ("source", 1),
        ("normed_conditioning", "yes"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_file_and_the_key(key: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=rf"mine/manifest\.json: {key} is .*, must be "):
        read(WHOLE.to_metadata() | {key: value})


def test_a_manifest_of_a_later_version_asks_for_an_update() -> None:
    with pytest.raises(CheckpointError, match=f"{VERSION_KEY} is {FORMAT_VERSION + 1}") as caught:
        read(WHOLE.to_metadata() | {VERSION_KEY: FORMAT_VERSION + 1, "a_new_key": 1})
    assert caught.value.hint == "update myxtts"


def test_names_of_the_earlier_version_are_not_names_of_this_one() -> None:
    with pytest.raises(CheckpointError, match="'guided'"):
        read(WHOLE.to_metadata() | {"guided": True})


def test_a_manifest_of_the_earlier_version_is_migrated() -> None:
    stored = json.loads((EARLIER / "mel" / "voice" / MANIFEST_FILE).read_text(encoding="utf-8"))["metadata"]

    manifest = voice_manifest(EARLIER / "mel" / "voice")

    assert manifest == VoiceManifest(
        parts=("dvae", "conditioning", "gpt", "mel_decoder"),
        languages=("en",),
        longest_text_tokens=31,
        reference_seconds=1.5,
        alignment_heads=((1, 0),),
        classifier_free_guidance=True,
        postfilter={part: tuple(gains) for part, gains in stored["detail"].items()},
        trained_to=("decoder", 8),
        trained_on=tuple(stored["learnt_from"]),
    )


def test_every_key_that_the_earlier_version_could_write_is_migrated() -> None:
    imported = {
        "source": "XTTS-v2",
        "sampling": {"temperature": 0.75},
        "languages": ["en"],
        "normed_conditioning": True,
    }
    exported = {"parts": ["gpt"], "learnt_all_clips": True, "longest_tokens": 9}

    assert read({**imported, "normed_conditioning": True}) == VoiceManifest(
        source="XTTS-v2", sampling=Sampling(temperature=0.75), languages=("en",), normed_conditioning=True
    )
    assert read(exported) == VoiceManifest(parts=("gpt",), trained_on_all_clips=True, longest_text_tokens=9)


def test_parts_that_an_early_import_does_not_name_are_known_by_their_weights() -> None:
    weights = ["gpt/block_1/qkv/kernel", "gpt/text_head/bias", "dvae/codebook/vectors"]

    assert VoiceManifest.from_metadata({"source": "XTTS-v2"}, PATH, weights).parts == ("gpt", "dvae")


def test_a_folder_without_a_voice_has_no_parts(tmp_path: Path) -> None:
    assert voice_manifest(tmp_path) == VoiceManifest()


@pytest.mark.parametrize("content", [{"version": 1}, {"version": 1, "sha256": "", "weights": [], "metadata": {}}])
def test_a_damaged_manifest_is_no_traceback(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
        voice_manifest(tmp_path)
