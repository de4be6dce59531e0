"""Phonemes by espeak-ng, which the wheel of `espeakng-loader` brings: IPA with stress marks, punctuation kept.

Text is cut into runs of one script, and each run is read by a voice that knows the script, so that English words
inside Persian (or the reverse) are spoken and not spelled. A word of two scripts ("LG전자") is cut too: espeak leaves
out all of it. `unspoken` names what no voice reads. Runs are cached, because corpora repeat them and a call into espeak
costs about 150 microseconds. espeak is not thread-safe: a lock checks it.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from myxtts.text import espeak
from myxtts.text.languages import find_language

PUNCTUATION = ",;:.!?¡¿-()\"'"
_CACHED_RUNS = 200_000
_CUTTING = re.escape(PUNCTUATION.replace("-", "").replace("'", ""))
_RUN = re.compile(f"[{_CUTTING}]|[^{_CUTTING}]+")
_SCRIPT_RANGES = (
    ("arabic", 0x0600, 0x06FF),
    ("arabic", 0x0750, 0x077F),
    ("greek", 0x0370, 0x03FF),
    ("cyrillic", 0x0400, 0x052F),
    ("devanagari", 0x0900, 0x097F),
    ("hangul", 0x1100, 0x11FF),
    ("hangul", 0xAC00, 0xD7A3),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x9FFF),
    ("latin", 0x0041, 0x02AF),
    ("latin", 0x1E00, 0x1EFF),
)
_VOICE_OF_SCRIPT = {
    "latin": "en-us",
    "greek": "el",
    "cyrillic": "ru",
    "arabic": "fa",
    "devanagari": "hi",
    "hangul": "ko",
    "kana": "ja",
    "han": "cmn",
}
_SHAPELESS = "\ufe0e\ufe0f\u200d"

_lock = threading.Lock()
_cache: dict[tuple[str, str], str] = {}


def phonemes(text: str, language: str) -> str:
    """IPA of a normalised text: words parted by spaces, punctuation marks where they stood."""
    return phonemes_of_many([text], language)[0]


def phonemes_of_many(texts: Sequence[str], language: str) -> list[str]:
    """`phonemes` of each text, with one call into espeak for each voice."""
    split = [_runs(text, language) for text in texts]
    wanted = {(voice, run) for runs in split for voice, run in runs if voice}
    sounds = _sounds(wanted)
    return [_joined(runs, sounds) for runs in split]


def unspoken(text: str, language: str) -> set[str]:
    """Signs of a normalised text that no voice reads; spaces, punctuation and marks on a letter are none."""
    if not any(map(_is_doubtful, set(text))):
        return set()
    lost = {sign for sign in text if _is_picture(sign) and sign not in _SHAPELESS}
    asked = set()
    for word in _words(text):
        for voice, part in _parts(word, language):
            asked |= {(voice, sign) for before, sign in pairwise(f" {part}") if _is_asked_for(sign, before)}
    return lost | {sign for (_, sign), sound in _sounds(asked).items() if not sound}


def _is_asked_for(sign: str, before: str) -> bool:
    """Whether only espeak can tell if it reads this sign, which stands behind `before`."""
    if unicodedata.category(sign)[0] == "M" and unicodedata.category(before)[0] in "LM":
        return False
    return _is_doubtful(sign) and not _is_picture(sign)


@lru_cache(maxsize=8192)
def _is_doubtful(sign: str) -> bool:
    """Whether a voice may pass over this sign in silence: any but those of ordinary writing."""
    category = unicodedata.category(sign)
    if sign in PUNCTUATION or category in ("Ps", "Pe", "Pi", "Pf", "Pd", "Pc", "Me", "Cf", "Zs"):
        return False
    return not (category[0] == "L" and _script(sign))


def _sounds(wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What (voice, run) pairs sound like, from the cache or with one call into espeak for each voice."""
    # A copy of its own: another thread may empty the cache while this one joins.
    sounds = {key: found for key in wanted if (found := _cache.get(key)) is not None}
    missing: dict[str, list[str]] = {}
    for voice, run in sorted(wanted - sounds.keys()):
        missing.setdefault(voice, []).append(run)
    for voice, new in missing.items():
        sounds.update(_speak(voice, new))
    return sounds


def _joined(runs: list[tuple[str, str]], sounds: dict[tuple[str, str], str]) -> str:
    parts = [sounds[voice, run] if voice else run for voice, run in runs]
    joined: list[str] = []
    last, quoted = "", False
    for part in parts:
        if not part:
            continue
        # A mark sits on the word before it; an opening one on the word after it.
        glued = not last or part in ",;:.!?)" or last in "(¡¿" or (quoted and '"' in (part, last))
        joined += [part] if glued else [" ", part]
        last, quoted = part[-1], quoted ^ (part.count('"') % 2 == 1)
    return "".join(joined)


def _runs(text: str, language: str) -> list[tuple[str, str]]:
    """(voice, words) and ("", mark) in order."""
    runs: list[tuple[str, str]] = []
    for word in _words(text):
        if len(word) == 1 and word in PUNCTUATION:
            runs.append(("", word))
            continue
        for voice, spoken in _parts(word, language):
            # Neighbours of one voice are read together: espeak links words within a phrase.
            if runs and runs[-1][0] == voice:
                runs[-1] = (voice, f"{runs[-1][1]} {spoken}")
            else:
                runs.append((voice, spoken))
    return runs


def _words(text: str) -> Iterator[str]:
    """Words, and marks on their own."""
    for match in _RUN.finditer(text):
        yield from match.group().split()


@lru_cache(maxsize=65536)
def _parts(word: str, language: str) -> tuple[tuple[str, str], ...]:
    """(voice, letters) of a word, cut where another script begins; pictures are left out."""
    spoken = "".join(" " if _is_picture(sign) else sign for sign in word).strip()
    if not spoken:
        return ()
    parts = [""]
    script = None
    for sign in spoken:
        found = _group(sign)
        if found and script and found != script:
            parts.append("")
        script = found or script
        parts[-1] += sign
    return tuple((_voice(part, language), part) for part in parts)


def _is_picture(sign: str) -> bool:
    return sign in _SHAPELESS or unicodedata.category(sign) in ("So", "Sk")


def _voice(letters: str, language: str) -> str:
    own = find_language(language)
    script = next((found for found in map(_script, letters) if found), own.script)
    if script == own.script or {script, own.script} <= {"han", "kana"}:
        return own.espeak_voice
    return _VOICE_OF_SCRIPT[script]


def _group(sign: str) -> str | None:
    """The script that a letter may stand beside others of within a word; None for what goes with any."""
    if not sign.isalpha() or unicodedata.category(sign) == "Lm":
        return None
    script = _script(sign)
    return "han" if script == "kana" else script or "other"


def _script(sign: str) -> str | None:
    point = ord(sign)
    if not sign.isalpha():
        return None
    return next((name for name, first, last in _SCRIPT_RANGES if first <= point <= last), None)


def _speak(voice: str, runs: list[str]) -> dict[tuple[str, str], str]:
    """Sounds of some runs of words, which are then in the cache too."""
    with _lock:
        new = {(voice, run): " ".join(_clean(espeak.ipa(run, voice), voice).split()) for run in runs}
    if len(_cache) + len(new) > _CACHED_RUNS:
        _cache.clear()
    _cache.update(new)
    return new


def _clean(sounds: str, voice: str) -> str:
    """espeak's IPA without its slips: a Persian uvular named q1, and full stops that are no punctuation."""
    if voice == "cmn":
        return sounds.replace(".", "\u0323")
    return re.sub(r"[0-9.]", "", sounds.replace("q1", "ɢ"))
