"""`myxtts import-xtts` on a whole folder, written here as Coqui publishes it, with weights from the formula."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from myxtts.cli.import_xtts import main
from myxtts.config.config import XTTSConfig
from myxtts.config.speaking import Sampling
from myxtts.errors import CheckpointError, ConfigError, OutputError, UsageError
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.text.tokenizer import load_tokenizer
from tests.golden import formula, gpt_case
from tests.golden.cases import DVAE
from tests.pth_writer import tensor, write, write_state
from tests.voice_maker import noise, open_on_cpu

MODEL_ARGS = {
    "gpt_layers": gpt_case.LAYERS,
    "gpt_n_model_channels": gpt_case.WIDTH,
    "gpt_n_heads": gpt_case.HEADS,
    "gpt_num_audio_tokens": gpt_case.AUDIO_CODES + 2,
    "gpt_max_text_tokens": gpt_case.MAX_TEXT,
    "gpt_max_audio_tokens": gpt_case.MAX_AUDIO,
    "d_vector_dim": 512,
    "gpt_use_perceiver_resampler": True,
    "output_sample_rate": 24000,
}


def vocabulary(size: int) -> dict[str, object]:
    special = ["[STOP]", "[UNK]", "[SPACE]", "[en]", "[de]", "[START]"]
    letters = [chr(ord("a") + index) for index in range(26)]
    entries = (special + letters + [f"filler{index}" for index in range(size)])[:size]
    added = [{"id": index, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for index, name in enumerate(special)]  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": "[UNK]", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "merges": [],
             "vocab": {name: index for index, name in enumerate(entries)}}  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
            "model": model}  # fmt: skip


def dvae_state() -> dict[str, np.ndarray]:
    """The golden DVAE with as many codes as the golden GPT has."""
    state, _ = formula.load("dvae")
    for name in ("codebook.embed", "codebook.embed_avg"):
        state[name] = formula.weight(name, (DVAE.code_width, gpt_case.AUDIO_CODES))
    state["codebook.cluster_size"] = formula.weight("codebook.cluster_size", (gpt_case.AUDIO_CODES,))
    return state


def model_state() -> dict[str, np.ndarray]:
    decoder, _ = formula.load("hifigan")
    shape = decoder["conv_pre.weight"].shape
    decoder["conv_pre.weight"] = formula.weight("conv_pre.weight", (shape[0], gpt_case.WIDTH, shape[2]))
    parts = {"gpt.": formula.load("gpt")[0], "hifigan_decoder.waveform_decoder.": decoder,
             "hifigan_decoder.speaker_encoder.": formula.load("speaker")[0]}  # fmt: skip
    return {prefix + name: value.astype(np.float32) for prefix, state in parts.items() for name, value in state.items()}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xtts_v2")
    write_state(folder / "model.pth", model_state())
    write_state(folder / "dvae.pth", dvae_state())
    stats_M = DVAE.mel_stats()
    write(folder / "mel_stats.pth", tensor(stats_M, "0"), {"0": stats_M})
    (folder / "config.json").write_text(json.dumps({"model_args": MODEL_ARGS, "repetition_penalty": 7.0}))
    (folder / "vocab.json").write_text(json.dumps(vocabulary(gpt_case.TEXT_VOCAB)))
    return folder


def copied(published: Path, target: Path, **changes: object) -> Path:
    """The folder by links, with other model_args."""
    target.mkdir()
    for path in published.iterdir():
        (target / path.name).symlink_to(path)
    (target / "config.json").unlink()
    (target / "config.json").write_text(json.dumps({"model_args": MODEL_ARGS | changes}))
    return target


def test_an_imported_folder_loads_and_gives_coquis_numbers(published: Path, tmp_path: Path) -> None:
    from myxtts.models.xtts import XTTS

    assert main([str(published), str(tmp_path / "voice")]) == 0

    config = XTTSConfig.from_yaml(tmp_path / "voice" / "config.yaml")
    model = XTTS(config.model)
    model.load(tmp_path / "voice")
    _, golden = formula.load("gpt")
    np.testing.assert_allclose(model.conditioning(gpt_case.mel_rows()), golden["latents"], atol=1e-4)
    _, golden = formula.load("dvae")
    encoded = model.dvae.encoder(DVAE.mel() / DVAE.mel_stats(), np.full(2, DVAE.frames, np.int32))
    np.testing.assert_allclose(encoded, golden["latents"], atol=1e-4)
    np.testing.assert_array_equal(np.asarray(model.dvae.mel_scale_M), DVAE.mel_stats())
    assert (config.model.text_start_token, config.model.text_stop_token) == (gpt_case.TEXT_START, gpt_case.TEXT_STOP)
    assert load_tokenizer(tmp_path / "voice" / "tokenizer.json").encode("abc", "en")[0] == 3


def test_an_imported_voice_speaks_and_its_references_are_read_as_coqui_reads_them(
    published: Path, tmp_path: Path
) -> None:
    main([str(published), str(tmp_path / "out")])
    synthesizer = open_on_cpu(tmp_path / "out")
    reference = noise(2.0, 1).astype(np.float32) / 32768

    # The golden GPT has few text positions: one short word.
    speech = synthesizer.speak("a", reference=[reference], language="en", checks=HallucinationChecks(retries=0))

    assert synthesizer.voice.config.model.normed_conditioning
    assert synthesizer.voice.sampling == Sampling(temperature=0.75, repetition_penalty=7.0)
    assert speech.sample_rate == 24000
    assert speech.seconds > 0
    assert "en" in synthesizer.voice.manifest.languages
    assert speech.report.language_note is None


def test_a_folder_that_lacks_a_file_says_which(published: Path, tmp_path: Path) -> None:
    folder = copied(published, tmp_path / "cut")
    (folder / "dvae.pth").unlink()

    with pytest.raises(CheckpointError, match=r"has no dvae\.pth"):
        main([str(folder), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_another_architecture_is_refused_by_its_setting(published: Path, tmp_path: Path) -> None:
    folder = copied(published, tmp_path / "v1", gpt_use_perceiver_resampler=False)

    with pytest.raises(ConfigError, match="gpt_use_perceiver_resampler is False, must be True"):
        main([str(folder), str(tmp_path / "out")])


def test_more_layers_in_the_file_than_in_its_config_are_an_error(published: Path, tmp_path: Path) -> None:
    folder = copied(published, tmp_path / "short", gpt_layers=gpt_case.LAYERS - 1)

    with pytest.raises(CheckpointError, match=r"no place in our model, among them gpt\.h\.2"):
        main([str(folder), str(tmp_path / "out")])


def test_a_full_output_folder_is_left_alone(published: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")

    with pytest.raises(UsageError, match="not an empty folder"):
        main([str(published), str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_output_folder_that_cannot_be_made_is_named(published: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match=r"file/out cannot be written"):
        main([str(published), str(tmp_path / "file" / "out")])
