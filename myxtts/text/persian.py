"""Persian orthography: the many ways to type one text become one.

Arabic yeh and kaf become Persian ones, tatweel and vowel marks go, half-spaces stand only inside Persian words, and the
prefixes and plural endings that people set off with a space are joined by a half-space, as the Academy writes them.
"""

from __future__ import annotations

import re

ZWNJ = "\u200c"

_LETTERS = str.maketrans(
    {
        "ي": "ی", "ى": "ی", "ې": "ی", "ك": "ک", "ڪ": "ک", "ة": "ه", "ہ": "ه", "ە": "ه", "ھ": "ه",
        "أ": "ا", "إ": "ا", "ٱ": "ا", "ؤ": "و", "ۀ": "ه" + ZWNJ + "ی",
        "\u0640": None,
    }
)  # fmt: skip
_MARKS = re.compile("[\u064b-\u065f\u0670\u06d6-\u06ed]")
_HALF_SPACES = re.compile(f"{ZWNJ}+")
_LETTER = "\u0621-\u063a\u0641-\u064a\u067e\u0686\u0698\u06a9\u06af\u06cc"
_STRAY_HALF_SPACE = re.compile(f"(?<![{_LETTER}]){ZWNJ}|{ZWNJ}(?![{_LETTER}])")
_VERB_PREFIX = re.compile(f"(?<![{_LETTER}{ZWNJ}])(ن?می) (?=[{_LETTER}])")
_ENDING = re.compile(f"(?<=[{_LETTER}]) (ها|های|هایی|هایم|هایت|هایش|هایمان|هایتان|هایشان|تر|ترین)(?![{_LETTER}{ZWNJ}])")


def normalise_persian(text: str) -> str:
    """Letters, marks and half-spaces in one form; digits and punctuation are left to the caller."""
    text = _MARKS.sub("", text.replace("ه\u0654", "ۀ").translate(_LETTERS))
    text = _HALF_SPACES.sub(ZWNJ, text)
    text = _VERB_PREFIX.sub(rf"\1{ZWNJ}", text)
    text = _ENDING.sub(rf"{ZWNJ}\1", text)
    return _STRAY_HALF_SPACE.sub("", text)
