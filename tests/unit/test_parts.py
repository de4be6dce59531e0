"""The table of parts and decoders: what a voice speaks with, and that nothing speaks in the place of something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.config.model import ModelConfig
from myxtts.config.parts import CODEC, CORE_PARTS, DECODERS, HIFIGAN, MEL, Decoder, decoder_of, voice_parts
from myxtts.errors import CheckpointError, ConfigError, SynthesisError
from myxtts.models.weights import WeightsManifest
from myxtts.synthesis.litert.layout import networks
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice_sizes import refuse_other_sizes


@pytest.mark.parametrize(
    ("parts", "speaks"),
    [
        (CORE_PARTS, CODEC),
        ((*CORE_PARTS, "speaker_encoder"), CODEC),
        ((*CORE_PARTS, "mel_decoder"), MEL),
        ((*CORE_PARTS, "speaker_encoder", "hifigan"), HIFIGAN),
        (("conditioning", "gpt", "speaker_encoder", "hifigan"), HIFIGAN),
        ((*CORE_PARTS, "mel_decoder", "speaker_encoder", "hifigan"), HIFIGAN),
    ],
)
def test_a_voice_speaks_with_the_last_decoder_that_it_has_all_of(parts: tuple[str, ...], speaks: object) -> None:
    assert decoder_of(parts) == speaks


def test_a_voice_with_a_part_that_is_not_known_does_not_speak_with_another() -> None:
    with pytest.raises(CheckpointError, match="a part 'wavenet' that this version does not know"):
        decoder_of((*CORE_PARTS, "wavenet"))


def test_a_mel_decoder_without_the_codec_that_it_reads_makes_no_wave() -> None:
    with pytest.raises(SynthesisError, match="neither a decoder nor a codec"):
        decoder_of(("conditioning", "gpt", "mel_decoder"))


def test_a_decoder_that_is_not_in_the_table_is_no_model() -> None:
    with pytest.raises(ConfigError, match="setting decoder 'wavenet' is not known"):
        ModelConfig(model_size="tiny", decoder="wavenet")


def test_weights_of_a_part_that_is_not_known_are_refused_before_they_are_counted(tmp_path: Path) -> None:
    stored = WeightsManifest("", {}, {})
    with pytest.raises(CheckpointError, match="a part 'wavenet' that this version does not know"):
        refuse_other_sizes(ModelConfig(model_size="tiny"), (*CORE_PARTS, "wavenet"), stored, tmp_path)


def test_every_part_has_one_place_in_a_voice() -> None:
    known = voice_parts()

    assert known == ("dvae", "conditioning", "gpt", "mel_decoder", "speaker_encoder", "hifigan")
    for decoder in DECODERS.values():
        assert ModelConfig(model_size="tiny", decoder=decoder.name).parts == (*CORE_PARTS, *decoder.parts)
        assert {*decoder.parts, *decoder.reads} <= set(known)


def test_a_decoder_without_litert_files_is_refused_by_name_and_not_exported_as_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DECODERS, "tones", Decoder(name="tones", parts=("tones",)))
    model = ModelConfig(model_size="tiny", decoder="tones")

    with pytest.raises(SynthesisError, match="decoder tones cannot be exported for LiteRT") as caught:
        networks(model, VoiceManifest(parts=model.parts))
    assert "--runtime tensorflow" in caught.value.hint
