"""An evaluation from a corpus to its files, with metrics of our own that answer what is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from myxtts.data.prepare import prepare
from myxtts.evaluation.evaluate import CodecAlone, Item
from myxtts.evaluation.items import held_out_items, text_items
from myxtts.evaluation.metrics import Metrics
from myxtts.evaluation.phones import PhoneRecogniser, training_clips
from myxtts.evaluation.run import evaluate_into
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.tensorflow_model import load_codec
from tests.corpus_maker import make_ljspeech, settings
from tests.voice_maker import make_voice, noise, open_on_cpu


class Deaf:
    """Transcribes one word, whatever is spoken."""

    name = "deaf"
    languages = frozenset({"en"})

    def transcribe(self, wave: np.ndarray, sample_rate: int) -> str:
        return "hello"


class Loudness:
    """Tells voices apart by how loud they are."""

    name = "loudness"

    def embed(self, wave: np.ndarray, sample_rate: int) -> np.ndarray:
        level = float(np.sqrt(np.mean(np.square(wave))))
        return np.array([level, 1.0], np.float32)


@pytest.fixture(scope="module")
def synthesizer(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    return open_on_cpu(make_voice(tmp_path_factory.mktemp("voice"), ["dvae", "conditioning", "gpt"]))


def test_every_version_of_every_item_is_evaluated_and_written(synthesizer: Synthesizer, tmp_path: Path) -> None:
    quiet, loud = (noise(1.5, seed).astype(np.float32) / 32768 * gain for seed, gain in ((1, 0.2), (2, 2.0)))
    quiet_too, loud_too = quiet[::-1].copy(), loud[::-1].copy()
    items = [
        Item(id="a", text="hello", language="en", speaker="quiet", reference=quiet, real=quiet_too, group="known"),
        Item(id="b", text="hello two", language="en", speaker="loud", reference=loud, real=loud_too, group="known"),
        Item(id="c", text="سلام", language="fa", speaker="quiet", reference=quiet),
        Item(id="d", text="!!!", language="en", speaker="loud", reference=loud),
    ]
    metrics = Metrics(recogniser=Deaf(), speaker=Loudness(), missing=["naturalness is missing"])

    result = evaluate_into(tmp_path, "A test", synthesizer, metrics, items, {"seed": 0})

    content = json.loads(result.json.read_text(encoding="utf-8"))
    by_line = {(line["group"], line["system"]): line for line in content["summary"]}
    real = by_line["known", "real clip"]
    assert (real["word_error"], real["right_speaker"], real["length_ratio"]) == (pytest.approx(1 / 3), 1.0, 1.0)
    assert real["similarity"] == pytest.approx(1.0)
    assert real["other_similarity"] < 0.999, "the other voice is not this one"
    assert by_line["known", "codec round trip"]["utterances"] == 2
    rows = {(row["item"], row["system"]): row for row in content["utterances"]}
    assert rows["c", "speech"]["words"] is None, "the recogniser does not know Persian"
    assert "can be spoken" in rows["d", "speech"]["failure"]
    assert by_line["", "speech"]["failures"] >= 1
    assert (tmp_path / "evaluation" / rows["a", "speech"]["path"]).is_file()
    page = result.page.read_text(encoding="utf-8")
    assert page.count("<audio") == 9
    assert "naturalness is missing" in page


def test_the_voice_is_evaluated_with_the_checks_that_were_asked_for(synthesizer: Synthesizer, tmp_path: Path) -> None:
    clip = noise(1.5, 1).astype(np.float32) / 32768
    item = Item(id="a", text="hello", language="en", speaker="one", reference=clip)
    hasty = HallucinationChecks(codes_per_token=0.1, spare_codes=4, retries=0)

    def seconds(checks: HallucinationChecks | None) -> float:
        folder = tmp_path / ("bare" if checks is None else "checked")
        options = SpeakingOptions(checks=checks)
        result = evaluate_into(folder, "A test", synthesizer, Metrics(recogniser=Deaf()), [item], {}, options)
        return float(json.loads(result.json.read_text(encoding="utf-8"))["utterances"][0]["seconds"])

    # This voice was never trained: it goes on for as long as it may.
    assert seconds(hasty) < 0.5 < seconds(None)


def test_a_codec_is_evaluated_before_any_gpt_has_learnt(tmp_path: Path) -> None:
    codec = load_codec(make_voice(tmp_path / "voice", ["dvae"]))
    clip, other = (noise(1.5, seed).astype(np.float32) / 32768 for seed in (1, 2))
    item = Item(id="a", text="hello", language="en", speaker="one", reference=other, real=clip)

    result = evaluate_into(tmp_path, "A test", CodecAlone(codec), Metrics(recogniser=Deaf()), [item], {})

    assert [(line.system, line.word_error) for line in result.summaries] == [
        ("codec round trip", 0.0),
        ("mel round trip", 0.0),
        ("real clip", 0.0),
    ]
    assert len(list((tmp_path / "evaluation").glob("a-*.wav"))) == 3


def test_items_are_held_out_clips_with_another_clip_of_their_speaker(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", clips=41)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"))

    items = held_out_items(prepared, 10)
    texts = text_items(prepared, ["one", "two"], "en", group="mine")

    assert len(items) == 2
    assert all(item.real is not None and not np.array_equal(item.real, item.reference) for item in items)
    lengths = [0.6 + 0.1 * (clip % 9) for clip in prepared.split()[0]]
    assert len(texts[0].reference) == pytest.approx(max(lengths) * 22050, abs=1), "the longest clip says most"
    assert [item.id for item in texts] == ["mine-001", "mine-002"]
    assert len(held_out_items(prepared, 5, all_clips=True)) == 5


def test_the_phone_recogniser_is_not_trained_on_evaluated_clips_though_one_was_refused(tmp_path: Path) -> None:
    lengths = [0.1, *(0.6 for _ in range(80))]  # the first is too short
    corpus = make_ljspeech(tmp_path / "corpus", seconds=lengths)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"), workers=1)
    ipa_of = {f"clip_{number}": f"clip_{number}" for number in range(80)}  # nothing is known of the last

    learnt = [clip.ipa for clip in training_clips(prepared, ipa_of)]

    evaluated = {item.id for item in held_out_items(prepared, 100)}
    assert len(evaluated) == 4
    assert set(learnt) == set(ipa_of) - evaluated - {"clip_0"}


def test_a_phone_recogniser_from_the_cache_knows_its_languages(tmp_path: Path) -> None:
    recogniser = PhoneRecogniser(["a", "b"])
    recogniser.languages = frozenset({"fa", "en"})
    recogniser.save(tmp_path / "phones.npz")

    assert PhoneRecogniser.load(tmp_path / "phones.npz").languages == {"fa", "en"}
