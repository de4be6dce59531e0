"""A voice with weights is exported the first time it speaks, kept in its folder, and used until its weights change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myxtts.cli.main import main
from myxtts.errors import MissingDependencyError
from myxtts.synthesis import opening
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.litert.folder import MANIFEST_FILE
from myxtts.synthesis.litert.model import LiteRTModel
from myxtts.synthesis.opening import KEPT_EXPORT, open_voice
from tests.processes import myxtts
from tests.voice_maker import make_voice

CHECKS = HallucinationChecks(retries=0)
PARTS = ["dvae", "conditioning", "gpt"]


def test_a_voice_is_exported_once_and_again_when_its_weights_change(tmp_path: Path) -> None:
    folder = make_voice(tmp_path / "voice", PARTS)
    kept = folder / KEPT_EXPORT / MANIFEST_FILE

    first = open_voice(folder)
    assert isinstance(first.model, LiteRTModel)
    assert len(first.speak("Hello.", checks=CHECKS).wave)
    written = kept.stat().st_mtime_ns
    open_voice(folder)
    assert kept.stat().st_mtime_ns == written

    (folder / KEPT_EXPORT / "conditioning.tflite").write_bytes(b"damaged")
    assert len(open_voice(folder).speak("Hello.", checks=CHECKS).wave)
    assert kept.stat().st_mtime_ns != written

    written = kept.stat().st_mtime_ns
    make_voice(folder, PARTS, {"gpt_layers": 1})
    changed = open_voice(folder)
    assert kept.stat().st_mtime_ns != written
    assert changed.voice.sha256 != first.voice.sha256
    assert len(changed.speak("Hello.", checks=CHECKS).wave)


def test_an_export_writes_nothing_to_standard_error(tmp_path: Path) -> None:
    folder = make_voice(tmp_path / "voice", PARTS)

    result = myxtts("export", str(folder), str(tmp_path / "out"), "--format", "litert")

    assert (result.returncode, result.stderr) == (0, "")


def test_an_export_that_cannot_be_made_leaves_speaking_to_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_voice(tmp_path / "voice", PARTS)
    (folder / KEPT_EXPORT).write_text("a file where the export would go")
    monkeypatch.setattr(opening, "configure_device", lambda simulate_gpus: "/CPU:0")

    synthesizer = open_voice(folder)

    assert not isinstance(synthesizer.model, LiteRTModel)
    assert "spoken with TensorFlow" in caplog.text


def test_without_tensorflow_a_voice_that_was_never_exported_says_where_to_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_voice(tmp_path / "voice", PARTS)
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == "tensorflow" else object())

    with pytest.raises(MissingDependencyError, match="has to be exported once") as caught:
        open_voice(folder)
    assert "--format litert" in caught.value.hint


def test_export_and_synth_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = make_voice(tmp_path / "voice", PARTS), tmp_path / "exported"
    wave, report = tmp_path / "hello.wav", tmp_path / "report.json"

    assert main(["export", str(folder), str(out), "--format", "litert", "--weights", "f16"]) == 0
    assert json.loads((out / MANIFEST_FILE).read_text())["weights"] == "f16"
    assert main(["synth", "Hello.", "--voice", str(out), "--out", str(wave), "--report", str(report)]) == 0
    assert wave.stat().st_size > 1000

    for wrong, words in (
        (["export", str(folder), str(out), "--format", "litert"], "not an empty folder"),
        (["export", str(folder), str(tmp_path / "a"), "--weights", "int8"], "--weights is for --format litert"),
        (["export", str(folder), str(tmp_path / "a"), "--format", "litert", "--half"], "--half is for"),
        (["export", str(out), str(tmp_path / "a")], "exported for speaking with LiteRT"),
        (["synth", "Hello.", "--voice", str(out), "--runtime", "tensorflow"], "no weights for TensorFlow"),
    ):
        assert main(wrong) in (1, 2)
        assert words in capsys.readouterr().err
