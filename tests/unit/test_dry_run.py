"""`train --dry-run`: the corpus is read, the summary is complete, and nothing is said that has not happened."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from myxtts.cli.main import main
from myxtts.cli.suited import suited_commands
from myxtts.cli.training_process import run_training
from myxtts.config.config import XTTSConfig
from myxtts.errors import TrainingError
from myxtts.runtime.inventory import Gpu, Inventory
from myxtts.training.recipes import stages_to_run
from myxtts.training.time_estimate import cpu_seconds
from tests.corpus_maker import make_ljspeech


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run of the developer's own in runs/default."""
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["train", "--dry-run", "--model-size", "tiny", *arguments]) == code
    written = capsys.readouterr()
    return written.out if code == 0 else written.err


def test_the_summary_has_clips_hours_parameters_steps_time_and_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 6)

    summary = shown(capsys, "--train-data", str(corpus)).partition("Summary")[2]

    for found in (
        r"run: runs/default, a new one",
        r"corpus: 6 clips, 0\.0\d hours",
        r"parameters: [\d,]{9,}",
        r"codec: [\d,]+ steps, about [\d:]+",
        r"gpt: [\d,]+ steps",
        r"decoder: [\d,]+ steps",
        r"time: about [\d:]+ of one core",
        r"memory: /CPU:0 [\d,]+ MB",
        r"on this machine: ",
    ):
        assert re.search(found, summary), found


def test_where_a_stage_was_not_measured_the_time_is_that_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 6)

    summary = shown(capsys, "--train-data", str(corpus), "--model-size", "normal").partition("Summary")[2]

    assert re.search(r"gpt: [\d,]+ steps, about", summary)
    assert re.search(r"decoder: [\d,]+ steps\n", summary)
    assert re.search(r"time: about [\d:]+ of one core and that of decoder, which was not measured on a CPU", summary)


def test_only_settings_that_differ_from_their_defaults_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--model-size", "normal", "--buffer-size", "25")

    settings = text.partition("Settings that differ")[2].partition("Summary")[0]
    assert settings.splitlines()[1:-1] == ["data:", "  buffer_size: 25"]


def test_nothing_is_said_that_has_not_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1")

    assert not re.search("starting now|completed|Configur|waiting", text)


def test_a_corpus_that_cannot_be_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)
    for wav in (corpus / "wavs").iterdir():
        wav.write_text("not audio")

    assert "is not audio that can be decoded" in shown(capsys, "--train-data", str(corpus), code=1)
    (corpus / "metadata.csv").write_text("")
    assert "is an empty corpus" in shown(capsys, "--train-data", str(corpus), code=1)


def test_time_grows_with_the_steps_and_shrinks_with_the_speed() -> None:
    config = XTTSConfig(model_size="tiny")
    for spec in stages_to_run(config):
        once = cpu_seconds(config, spec, 100, 3.0, 1e11)
        assert once is not None
        assert cpu_seconds(config, spec, 200, 3.0, 4e11) == pytest.approx(once / 2)


def test_no_time_is_told_where_none_was_measured() -> None:
    config = XTTSConfig(model_size="small")

    assert cpu_seconds(config, stages_to_run(config)[-1], 100, 3.0, 1e11) is None


def test_a_run_that_is_there_goes_on_or_is_refused_as_training_would_refuse_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = ("--train-data", str(make_ljspeech(tmp_path / "corpus", 2)))
    run = tmp_path / "runs" / "default"
    (run / "checkpoints" / "codec" / "step-00000001").mkdir(parents=True)
    XTTSConfig(model_size="tiny").to_yaml(run / "config.yaml")

    assert "run: runs/default, goes on" in shown(capsys, *corpus)
    assert "runs/default was started with other settings" in shown(capsys, *corpus, "--batch-size", "3", code=1)
    assert "run: runs/default, moved aside for a new one" in shown(capsys, *corpus, "--batch-size", "3", "--fresh")


@pytest.mark.parametrize(
    ("gpus", "first"), [(0, "--init-from base"), (1, "--train-data MY_FOLDER"), (2, "--data-gpu 0 --model-gpu 1")]
)
def test_what_suits_a_machine_follows_its_gpus(gpus: int, first: str) -> None:
    found = Inventory(gpus=tuple(Gpu(index=index, name="a GPU", memory_mb=24000) for index in range(gpus)))

    assert suited_commands(found, trains=True)[0][0].endswith(first)


def test_a_setting_that_may_be_left_out_is_shown_without_the_word_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])

    text = capsys.readouterr().out
    assert "{None}" not in text
    assert re.search(r"--max-steps INT ", text)
    assert "--stage {codec,gpt,decoder} " in text


def test_a_training_whose_time_ends_before_it_can_save_says_so() -> None:
    with pytest.raises(TrainingError, match="before training had begun") as raised:
        run_training([sys.executable, "-c", "import time; time.sleep(60)"], 0.005)

    assert "--minutes" in raised.value.hint
