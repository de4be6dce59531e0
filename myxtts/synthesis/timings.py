"""Word timings from the text token that the alignment heads attend to for each code, and their file formats.

Without alignment heads the words share the time by their number of tokens, and their source is "estimated".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import SynthesisError
from myxtts.files import writing
from myxtts.synthesis.hallucinations import smoothed_tokens

_WORD = re.compile(r"\S+")
Source = Literal["aligner", "attention", "estimated"]


@dataclass(frozen=True, slots=True)
class WordTiming:
    """One word of the text as it was written, and its time in the whole speech."""

    word: str
    start_s: float
    end_s: float
    source: Source


def words_of(text: str) -> list[str]:
    """What stands between spaces and can be spoken."""
    return [word for word in _WORD.findall(text) if any(sign.isalnum() for sign in word)]


def token_ends(words: Sequence[str], count_many: Callable[[list[str]], list[int]], total: int) -> list[int]:
    """For each word, the index behind its last token, by counting the tokens of the text up to it.

    Front ends link words and read numbers as one, so counts of parts need not grow; the ends returned do.
    """
    prefixes = [" ".join(words[: number + 1]) for number in range(len(words))]
    ends: list[int] = []
    for count in count_many(prefixes) if prefixes else []:
        ends.append(min(max(count, ends[-1] if ends else 0), total))
    if ends:
        ends[-1] = total
    return ends


def code_starts(ends: Sequence[int], spoken_token_N: NDArray[np.int32]) -> list[int]:
    """For each word, the first code whose attended token is one of its own or later; ends with the number of codes."""
    furthest = np.maximum.accumulate(smoothed_tokens(spoken_token_N)) if len(spoken_token_N) else spoken_token_N
    begins = [0, *ends[:-1]]
    # The language token stands first and belongs to no word.
    starts = [int(np.searchsorted(furthest, max(begin, 1), side="left")) for begin in begins]
    return [*starts, len(spoken_token_N)]


def estimated_starts(ends: Sequence[int], codes: int) -> list[int]:
    """The same, as if every token took the same time."""
    total = max(1, ends[-1] if ends else 1)
    return [round(codes * begin / total) for begin in [0, *ends]]


def timings(
    words: Sequence[str],
    starts: Sequence[int],
    source: Source,
    *,
    code_s: float,
    offset_s: float,
    least_s: float,
    most_s: float,
) -> list[WordTiming]:
    """Codes to seconds; nothing lies outside the piece's own sound (`least_s` to `most_s`)."""

    def second(code: int) -> float:
        return round(min(max(offset_s + code * code_s, least_s), most_s), 3)

    return [
        WordTiming(word, second(starts[number]), second(max(starts[number], starts[number + 1])), source)
        for number, word in enumerate(words)
    ]


def check_timings_name(path: Path) -> None:
    if path.suffix.lower() not in (".json", ".srt"):
        raise SynthesisError(f"--timings {path.name} has the suffix {path.suffix!r}", hint="name it .json or .srt")


def write_timings(path: Path, words: Sequence[WordTiming]) -> None:
    """JSON or SRT, by the suffix."""
    check_timings_name(path)
    content = as_srt(words) if path.suffix.lower() == ".srt" else as_json(words)
    with writing(path):
        path.write_text(content, encoding="utf-8")


def as_json(words: Sequence[WordTiming]) -> str:
    return json.dumps({"words": [asdict(word) for word in words]}, ensure_ascii=False, indent=1) + "\n"


def as_srt(words: Sequence[WordTiming]) -> str:
    """One subtitle a word."""
    blocks = [
        f"{number}\n{_srt_time(word.start_s)} --> {_srt_time(word.end_s)}\n{word.word}\n"
        for number, word in enumerate(words, 1)
    ]
    return "\n".join(blocks)


def _srt_time(seconds: float) -> str:
    whole_ms = round(seconds * 1000)
    minutes, ms = divmod(whole_ms, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{ms // 1000:02d},{ms % 1000:03d}"
