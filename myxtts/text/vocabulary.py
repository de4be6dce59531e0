"""What every tokenizer is: ids below a size, the first four of them fixed, and one JSON file on disk."""

from __future__ import annotations

import json
import os
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.files import replacing

Frontend = Literal["phonemes", "characters", "bpe"]

PAD, UNKNOWN, START, STOP = 0, 1, 2, 3
SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]")
FORMAT = "myxtts-tokenizer"


class Tokenizer(ABC):
    """What every front end offers."""

    frontend: ClassVar[Frontend]
    pad_id: int = PAD
    unknown_id: int = UNKNOWN
    start_id: int = START
    stop_id: int = STOP

    @property
    @abstractmethod
    def size(self) -> int:
        """Ids are below this number."""

    @abstractmethod
    def encode(self, text: str, language: str) -> list[int]:
        """Ids of the normalised text, the language token first."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids (phonemes: the IPA), without special and language tokens."""

    @abstractmethod
    def unknown(self, text: str, language: str) -> set[str]:
        """Characters (phonemes: IPA signs, and signs that no voice reads) that have no token of their own."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Everything that `load_tokenizer` needs."""

    @abstractmethod
    def tokens(self) -> list[str]:
        """The name of every id, in order: for reports and for tests."""

    def sounding(self) -> list[bool]:
        """For every id whether it makes a sound of its own: phones and letters do, marks and punctuation do not."""
        return [_sounds(name) for name in self.tokens()]

    def spoken_labels(self) -> NDArray[np.int32]:
        """For every id its number among those that make a sound, a CTC network's label; -1 for the others."""
        sounding = np.array(self.sounding())
        return np.where(sounding, np.cumsum(sounding) - 1, -1).astype(np.int32)

    def spaces(self) -> list[bool]:
        """For every id whether it stands between words; byte-pair pieces have their space in them."""
        return [name in (" ", "[SPACE]") for name in self.tokens()]

    def encode_many(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """`encode` of each text; faster than one at a time where phonemes have to be found."""
        return [self.encode(text, language) for text in texts]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as one JSON file, whole or not at all."""
        with replacing(Path(path)) as part:
            part.write_text(json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _sounds(name: str) -> bool:
    # Stress, length and aspiration marks are modifier letters (Lm), tildes and the like are combining marks (Mn).
    special = name.startswith("[") and name.endswith("]")
    return not special and any(unicodedata.category(sign) in ("Ll", "Lu", "Lo", "Lt", "Nd") for sign in name)
