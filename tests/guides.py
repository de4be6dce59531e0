"""Reads the README and the guides: their code blocks, the commands in these, their links, headings and tables."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT

PAGES = tuple(sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]))
RUN = "<!-- run -->"
RUN_ERRORS = "<!-- run: errors -->"
OUR_SCRIPTS = {"train_main.py": "train", "validate_dual_gpu_pipeline.py": "validate"}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the mark in the line above it."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its shell commands as words: comments dropped, continued lines joined, pipes cut off."""
        joined = self.text.replace("\\\n", " ")
        lines = [shlex.split(line, comments=True) for line in joined.splitlines()] if self.language == "bash" else []
        return [part for line in lines if line for part in _parts(line)]


def _parts(words: list[str]) -> Iterator[list[str]]:
    """The commands of a pipeline or a list, without their redirections."""
    part: list[str] = []
    for word in words:
        if word in ("|", "&&", ";"):
            yield part
            part = []
        elif word == ">":
            break
        else:
            part.append(word)
    yield part


def text_of(page: Path) -> str:
    """The page without the marks that keep code from left to right in a Persian line."""
    return page.read_text(encoding="utf-8").replace("\u200e", "")


def blocks(page: Path) -> list[Block]:
    found, before, opened = [], "", None
    collected: list[str] = []
    for number, line in enumerate(text_of(page).splitlines(), 1):
        if line.startswith("```"):
            if opened is None:
                opened, collected = (number, line[3:].strip(), before), []
            else:
                found.append(Block(page, opened[0], opened[1], opened[2], "\n".join(collected)))
                opened = None
        elif opened is not None:
            collected.append(line)
        elif line.strip():
            before = line.strip()
        if opened is None and line.startswith("```"):
            before = ""
    assert opened is None, f"{page.name}: the block of line {opened[0] if opened else 0} is not closed"
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def turned_lists(page: Path) -> list[str]:
    """Places of a right-to-left page where what stands before a comma is shown on the wrong side of it.

    Between two words from left to right, and before a digit behind one, a comma takes their direction, if no mark
    (U+200F) gives it the page's. One behind a bracket takes what the brackets hold, which is looked at for itself.
    """
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<[^>]*>", "", _LINK.sub("]", text))
    found = []
    for paragraph in re.split(r"\n|(?<=\s)\|(?=\s)", text):
        outside = re.sub(r"`[^`]*`", lambda code: "a" * len(code[0]), paragraph)
        for comma in re.finditer(r"(?<!\))[،؛:]", outside):
            before, after = outside[: comma.start()], outside[comma.end() :]
            # A digit has no direction of its own, but that of the word before it.
            left = next((way for way in map(_direction, reversed(before)) if way in ("left", "right")), "right")
            right = next(filter(None, map(_direction, after)), "right")
            if left == "left" and right in ("left", "digit"):
                found.append(paragraph[max(0, comma.start() - 30) : comma.end() + 30])
    return found


def _direction(letter: str) -> str:
    ways = {"L": "left", "R": "right", "AL": "right", "EN": "digit"}
    return ways.get(unicodedata.bidirectional(letter), "")


def our_command(words: list[str]) -> tuple[str, list[str]] | None:
    """Which command of ours these words call, and with which arguments."""
    if words[:1] == ["myxtts"] and len(words) > 1:
        return words[1], words[2:]
    if words[:3] == ["python", "-m", "myxtts"] and len(words) > 3:
        return words[3], words[4:]
    if words[:1] == ["python"] and len(words) > 1 and words[1] in OUR_SCRIPTS:
        return OUR_SCRIPTS[words[1]], words[2:]
    return None


def links(page: Path) -> list[str]:
    """Targets inside the project."""
    return [target for target in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The headings as GitHub names them in an address, and the places that name themselves."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    named = set(re.findall(r'<a id="([^"]+)">', prose(page)))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def inline_code(page: Path) -> list[str]:
    return _CODE.findall(prose(page))


def table_below(page: Path, mark: str) -> list[list[str]]:
    """The cells of the table that follows a mark, without its two head lines."""
    text = text_of(page)
    if f"\n{mark}\n" not in text:
        return []
    rows = text.split(f"\n{mark}\n", 1)[1].lstrip("\n").split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows[2:]]


def tree_paths(page: Path) -> list[str]:
    """The paths of the annotated tree: two spaces of indentation are inside of the line above."""
    block = next(block for block in blocks(page) if block.text.startswith("myxtts/"))
    paths, outer = [], ""
    for line in block.text.splitlines():
        name = line.split()[0]
        if line.startswith("  "):
            paths.append(outer + name)
        else:
            outer = name
            paths.append(name)
    return paths
