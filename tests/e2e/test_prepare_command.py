"""`myxtts prepare` as a user sees it: the report, the reuse, and where refusals are listed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from myxtts.cli.prepare import main
from tests.corpus_maker import make_ljspeech
from tests.processes import myxtts


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    corpus = make_ljspeech(tmp_path / "voices", 12)
    (corpus / "wavs" / "clip_3.wav").write_bytes(b"not audio at all")
    return corpus


def prepare(corpus: Path, *flags: str) -> list[str]:
    return [str(corpus), "--cache-dir", str(corpus.parent / "cache"), "--text-frontend", "characters", *flags]


def test_the_report_says_what_the_corpus_holds(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(prepare(corpus)) == 0

    shown = capsys.readouterr().out
    for part in (
        "kept 11 clips, 0.00 hours (ljspeech)",
        "speakers (1): voices 11",
        "refused 1 (8.3%)",
        "not audio",
        "refused.jsonl",
    ):
        assert part in shown


def test_the_reason_of_a_refusal_is_whole(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "wavs" / "clip_3.wav").unlink()

    main(prepare(corpus))

    assert re.search(r"\n +1 no audio file .* or the corpus folder\n", capsys.readouterr().out)


def test_json_is_the_report_and_names_the_folder(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(prepare(corpus, "--json", "--out", str(corpus.parent / "here")))

    report = json.loads(capsys.readouterr().out)

    assert report["clips"] == 11
    assert report["prepared"] == str(corpus.parent / "here")
    assert (corpus.parent / "here" / "refused.jsonl").read_text().count("\n") == 1


def test_a_flag_of_the_settings_reaches_them(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        prepare(
            corpus, "--min-clip-seconds", "0.75", "--max-refused-share", "1", "--corpus-format", "ljspeech", "--json"
        )
    )

    assert "--min-clip-seconds …" in json.dumps(
        json.loads(capsys.readouterr().out)["refused_by_reason"], ensure_ascii=False
    )


def test_without_a_terminal_progress_is_a_plain_line(corpus: Path) -> None:
    shown = myxtts("prepare", *prepare(corpus))

    assert shown.returncode == 0, shown.stderr
    assert "read 12 of 12 clips, kept 11" in shown.stderr
    assert "\x1b" not in shown.stdout + shown.stderr


def test_too_many_refusals_end_with_two_lines_and_code_1(corpus: Path) -> None:
    shown = myxtts("prepare", *prepare(corpus, "--max-refused-share", "0.01"))

    assert shown.returncode == 1
    problem, hint = shown.stderr.strip().splitlines()[-2:]
    assert problem.startswith("error: 1 of 12 clips were refused (8%)")
    assert "metadata.csv, line 4" in problem
    assert "--max-refused-share" in hint
    assert "Traceback" not in shown.stderr
