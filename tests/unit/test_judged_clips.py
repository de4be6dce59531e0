"""What a voice is judged with: no clip that it learnt, and no clip compared with itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.config.data import DataConfig
from myxtts.errors import DataError, OutputError, SynthesisError
from myxtts.evaluation.evaluate import Item
from myxtts.evaluation.items import holds_all_out
from myxtts.evaluation.judges import Judges
from myxtts.evaluation.run import evaluate_into


def test_a_run_with_a_validation_folder_is_judged_with_all_of_that_folder(tmp_path: Path) -> None:
    config = DataConfig(train_data=str(tmp_path / "train"), val_data=str(tmp_path / "x" / ".." / "val"))

    assert holds_all_out(config, tmp_path / "val")
    assert not holds_all_out(DataConfig(train_data=str(tmp_path / "val")), tmp_path / "val")


def test_a_folder_that_was_learnt_whole_is_refused_and_the_other_one_is_named(tmp_path: Path) -> None:
    train, val = str(tmp_path / "train"), str(tmp_path / "val")

    with pytest.raises(DataError, match="learnt every clip") as caught:
        holds_all_out(DataConfig(train_data=train, val_data=val), tmp_path / "train")
    assert f"--data {val}" in caught.value.hint
    with pytest.raises(DataError, match="learnt every clip") as caught:
        holds_all_out(DataConfig(train_data=train, val_data=train), tmp_path / "train")
    assert "--data" not in caught.value.hint


def test_a_folder_that_the_run_does_not_know_is_taken_only_where_all_of_it_was_never_heard(tmp_path: Path) -> None:
    config = DataConfig(train_data=str(tmp_path / "train"), val_data=str(tmp_path / "val"))

    with pytest.raises(DataError, match="held out no clip") as caught:
        holds_all_out(config, tmp_path / "moved")
    assert "--all-clips" in caught.value.hint


class Mute:
    """A voice that cannot speak: only real clips are judged."""

    codec = None

    def speak(self, text: str, **manner: Any) -> Any:
        raise SynthesisError("it is mute", hint="train it")


class FirstSample:
    """Hears in a clip its first sample: clips with another one have nothing in common."""

    name = "first sample"

    def embed(self, wave: np.ndarray, sample_rate: int) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[round(float(wave[0]) * 4)]


def test_a_place_that_cannot_be_written_is_named_before_anything_is_judged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match=r"file/below cannot be written: Not a directory"):
        evaluate_into(tmp_path / "file" / "below", "A test", Mute(), Judges(), [], {})


def test_a_clip_is_never_compared_with_itself(tmp_path: Path) -> None:
    first, second, third = (np.full(400, number / 4, np.float32) for number in range(3))
    items = [
        Item(id="a", text="one", language="en", speaker="anna", reference=second, real=first),
        Item(id="b", text="two", language="en", speaker="anna", reference=first, real=second),
        Item(id="c", text="three", language="en", speaker="omid", reference=third, real=third),
    ]

    result = evaluate_into(tmp_path, "A test", Mute(), Judges(speaker=FirstSample()), items, {})

    rows = json.loads(result.json.read_text(encoding="utf-8"))["utterances"]
    judged = {row["item"]: (row["similarity"], row["right_speaker"]) for row in rows if row["system"] == "real clip"}
    assert judged == {"a": (0.0, False), "b": (0.0, False), "c": (None, None)}
