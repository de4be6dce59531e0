"""The manifest of a voice that a run publishes: languages and corpora, with what it inherits when fine-tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.config.speaking import Sampling
from myxtts.data.prepare import prepare
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.training.publishing import manifest_of, with_inherited
from tests.corpus_maker import make_ljspeech, settings


def test_a_voice_knows_the_languages_of_its_training_clips(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", clips=2)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"), workers=1)

    manifest = manifest_of(prepared, np.arange(2), XTTSConfig(), ())

    assert manifest.languages == ("en",)
    assert manifest.trained_on == (prepared.clip_list,)


def test_a_voice_remembers_every_corpus_that_its_run_was_trained_on(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", clips=2)
    prepared = prepare(str(corpus), settings(tmp_path / "cache"), workers=1)

    first = manifest_of(prepared, np.arange(2), XTTSConfig(), (), trained_on=["other"])
    again = manifest_of(prepared, np.arange(2), XTTSConfig(), (), trained_on=first.trained_on)

    assert again.trained_on == ("other", prepared.clip_list)


PUBLISHED = VoiceManifest(
    languages=("en", "de"), sampling=Sampling(temperature=0.75), classifier_free_guidance=True, source="theirs"
)


def test_a_fine_tuned_voice_inherits_languages_sampling_and_guidance_with_the_gpt() -> None:
    trained = VoiceManifest(languages=("fa", "de"), longest_text_tokens=9)

    assert with_inherited(trained, PUBLISHED, ["dvae", "gpt"]) == VoiceManifest(
        languages=("en", "de", "fa"),
        longest_text_tokens=9,
        sampling=Sampling(temperature=0.75),
        classifier_free_guidance=True,
    )


def test_a_voice_that_inherits_a_codec_alone_speaks_as_it_was_trained_itself() -> None:
    trained = VoiceManifest(languages=("fa",))

    assert with_inherited(trained, PUBLISHED, ["dvae"]) == trained


def test_languages_that_are_not_known_of_the_inherited_voice_stay_unknown() -> None:
    trained = VoiceManifest(languages=("fa",))
    once = with_inherited(trained, VoiceManifest(), ["gpt"])

    assert once.languages == with_inherited(trained, once, ["gpt"]).languages == ()
