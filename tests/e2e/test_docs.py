"""The README and the guides are true: commands parse and run, links lead somewhere, the tree is the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from myxtts.audio.io import write_audio
from myxtts.cli.commands import COMMANDS
from myxtts.cli.completion import options_of
from myxtts.cli.flags import defaults_beneath, parse_options
from myxtts.cli.main import main
from myxtts.config.earlier import NO_LONGER_FLAGS, SPEAKING_FLAGS
from myxtts.config.public import flag
from myxtts.synthesis.options import SpeakingKeywords
from tests.guides import (
    OUR_SCRIPTS,
    PAGES,
    RUN,
    RUN_ERRORS,
    anchors,
    blocks,
    inline_code,
    links,
    our_command,
    table_below,
    tree_paths,
    turned_lists,
)
from tests.processes import ROOT
from tests.serving import spoken_noise

NOISE = ("oneDNN", "absl::InitializeLog", "WARNING:tensorflow", "cpu_feature_guard", "Traceback", "UserWarning")
MOST_ROOT_ENTRIES = 18
TRANSLATED = [page for page in PAGES if page.name.endswith(".fa.md")]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def parse_only(name: str, arguments: list[str]) -> None:
    """What the command itself does with its arguments before it does anything."""
    options = options_of(name)
    default = options(settings=defaults_beneath(arguments)) if name == "train" else None
    parse_options(options, arguments, command=name, default=default)


def all_flags(capsys: pytest.CaptureFixture[str]) -> set[str]:
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
    return set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))


@pages
def test_every_command_in_a_block_is_one_that_we_have(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for block in blocks(page):
        for words in block.commands:
            called = our_command(words)
            if called is None or called[0].startswith("--"):
                continue
            name, arguments = called
            if name not in COMMANDS:
                wrong.append(f"line {block.line}: there is no command {name}")
            elif "--help" not in arguments:
                try:
                    parse_only(name, [word for word in arguments if word != "--debug"])
                except SystemExit:
                    wrong.append(f"line {block.line}: {' '.join(words)}: {capsys.readouterr().err}")
    assert wrong == []


@pages
def test_every_program_and_make_target_in_a_block_is_there(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    wrong = []
    for block in blocks(page):
        for words in block.commands:
            if words[0] == "make" and words[1] not in targets:
                wrong.append(" ".join(words))
            if words[:2] == ["python", "-m"] and words[2].split(".")[0] in ("tools", "bench"):
                path = ROOT / words[2].replace(".", "/")
                if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
                    wrong.append(" ".join(words))
    assert wrong == []


def test_every_flag_that_a_page_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    shown, hidden = all_flags(capsys), {*map(flag, NO_LONGER_FLAGS), *SPEAKING_FLAGS}
    wrong = []
    for page in PAGES:
        # A history names flags that are hidden by now.
        known = shown | hidden if page.name == "CHANGELOG.md" else shown
        for code in inline_code(page):
            if our_command(code.split()) is None and not code.startswith("--"):
                continue
            wrong += [f"{page.name}: {word}" for word in re.findall(r"--[a-z][a-z-]+", code) if word not in known]
    assert wrong == []


@pages
def test_every_file_and_module_that_a_page_names_is_there(page: Path) -> None:
    wrong = []
    for code in inline_code(page):
        if "NAME" in code:
            continue  # for the reader to fill in
        if re.fullmatch(r"(myxtts|tests|tools|bench|docs)/[\w/.-]+", code) and not (ROOT / code).exists():
            wrong.append(code)
        if re.fullmatch(r"(myxtts|tests|tools|bench)(\.\w+)+", code) and not names_something(code):
            wrong.append(code)
    assert wrong == []


def names_something(dotted: str) -> bool:
    """Whether this is a module of ours, or a name that stands in one."""
    *parts, last = dotted.split(".")
    if (ROOT.joinpath(*parts, f"{last}.py")).is_file() or ROOT.joinpath(*parts, last).is_dir():
        return True
    module = ROOT.joinpath(*parts).with_suffix(".py")
    file = module if module.is_file() else ROOT.joinpath(*parts, "__init__.py")
    return file.is_file() and re.search(rf"\b{last}\b", file.read_text(encoding="utf-8")) is not None


@pages
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("readme", [ROOT / "README.md", ROOT / "README.fa.md"], ids=lambda page: page.name)
def test_the_annotated_tree_is_the_real_one(readme: Path) -> None:
    named = tree_paths(readme)

    assert [path for path in named if not (ROOT / path).exists()] == []
    packages = sorted(f"myxtts/{init.parent.name}/" for init in (ROOT / "myxtts").glob("*/__init__.py"))
    assert [path for path in packages if path not in named] == []


def test_the_root_is_small() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    entries = {line.split("/")[0] for line in listed.splitlines()}
    assert len(entries) <= MOST_ROOT_ENTRIES, sorted(entries)


def symptoms(page: Path) -> list[list[str]]:
    return [re.findall(r"`([^`]+)`", row[0]) for row in table_below(page, RUN_ERRORS)]


IN_PERSIAN = re.compile(r" --languages? fa\b| --script BOOK\.txt\b")
"""What a Persian page may add: the language, and the script of recordings, which no recogniser here can hear."""


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_persian_page_has_the_commands_of_its_english_one(page: Path) -> None:
    english = page.with_name(page.name.replace(".fa.md", ".md"))

    def commands(of: Path) -> list[str]:
        return [IN_PERSIAN.sub("", " ".join(words)) for block in blocks(of) for words in block.commands]

    assert commands(page) == commands(english)
    assert symptoms(page) == symptoms(english)


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_no_list_of_a_persian_page_is_turned_round(page: Path) -> None:
    assert turned_lists(page) == []


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_no_mark_of_direction_is_copied_with_a_command(page: Path) -> None:
    code = re.findall(r"`+[^`]+`+", page.read_text(encoding="utf-8"))

    assert [words for words in code if "\u200e" in words] == []


@pytest.mark.parametrize(
    ("page", "row"),
    [(page, row) for page in PAGES for row in table_below(page, RUN_ERRORS) if row[-1]],
    ids=lambda value: value.name if isinstance(value, Path) else value[0].strip("`")[:40],
)
def test_a_command_of_the_troubleshooting_table_shows_its_error(
    page: Path, row: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MYXTTS_SIMULATE_GPUS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    called = our_command(row[-1].strip("`").split())
    assert called is not None
    name, arguments = called

    assert main([name, *arguments]) == 1

    assert row[0].strip("`") in capsys.readouterr().err


@pytest.mark.parametrize("name", ["README.md", "README.fa.md", "docs/speaking.md", "docs/speaking.fa.md"])
def test_the_python_that_speaks_with_the_built_in_voice_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    (program,) = (text for text in programs if 'open_voice("base")' in text)
    write_audio(tmp_path / "CLIP.wav", spoken_noise(3.0), 22050)

    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert "WordTiming(word='Hello'" in result.stdout
    assert len(re.findall(r"^\d{4,}\b", result.stdout, flags=re.MULTILINE)) > 1, "it comes in pieces"
    assert (tmp_path / "hello.wav").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["docs/speaking.md", "docs/speaking.fa.md"])
def test_every_keyword_of_speak_is_explained(name: str) -> None:
    explained = re.findall(r"^\| \W*`(\w+)`", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert set(explained) == set(SpeakingKeywords.__annotations__)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_marked_blocks_run_quietly_and_end_well(tmp_path: Path) -> None:
    """One after another in one folder, as a reader would type them; each command once, whatever page it is on."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("MYXTTS_SIMULATE_GPUS", "NO_COLOR")}
    inherited.pop("TF_CPP_MIN_LOG_LEVEL", None)  # quiet by our own doing
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": "-1"}
    seen = set()
    for page in PAGES:
        if page in TRANSLATED:
            continue  # the same commands
        for block in blocks(page):
            if block.mark != RUN:
                continue
            for words in block.commands:
                if tuple(words) in seen:
                    continue
                seen.add(tuple(words))
                result = subprocess.run(
                    runnable(words),
                    cwd=tmp_path,
                    env={**inherited, **home, "PYTHONPATH": str(ROOT)},
                    capture_output=True,
                    text=True,
                    timeout=300,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
                said = f"{page.name}:{block.line}: {' '.join(words)}\n{result.stdout[-1500:]}\n{result.stderr[-3000:]}"
                assert result.returncode == 0, said
                assert [noise for noise in NOISE if noise in result.stderr] == [], said
    assert len(seen) >= 10


def runnable(words: list[str]) -> list[str]:
    if words[0] == "myxtts":
        return [sys.executable, "-m", "myxtts", *words[1:]]
    assert words[0] == "python", f"{words[0]} is not ours to run: take the mark away"
    return [sys.executable, str(ROOT / words[1]) if words[1] in OUR_SCRIPTS else words[1], *words[2:]]
