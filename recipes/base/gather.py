"""Put the speech of the base voice together: one LJSpeech folder with the clips of several corpora.

    python recipes/base/gather.py OUT FOLDER[:MOST][:LANGUAGE] ...

MOST takes every n-th clip so that about that many are left, LANGUAGE is for a corpus without a language column. A
corpus without a speaker column is one speaker, named by its folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def lines_of(folder: Path, most: int | None, language: str) -> list[tuple[Path, str]]:
    """For each clip taken, its file and its line of metadata with speaker and language."""
    metadata = sorted(folder.glob("metadata*.csv"))
    rows = [line.split("|") for path in metadata for line in path.read_text(encoding="utf-8").splitlines() if line]
    step = 1.0 if most is None else max(1.0, len(rows) / most)
    taken = []
    for row in (rows[int(number * step)] for number in range(int(len(rows) / step))):
        name, text, spoken, speaker, own_language = (*row, *["", "", ""][len(row) - 2 :])[:5]
        found = sorted((folder / "wavs").glob(f"{name}.*"))
        if found:
            line = "|".join((name, text, spoken or text, speaker or folder.name, own_language or language))
            taken.append((found[0], line))
    return taken


def main(out: str, *sources: str) -> None:
    missing = [source for source in sources if not (Path(source.split(":")[0]) / "wavs").is_dir()]
    if not sources or missing:
        sys.exit(f"error: {missing[0] if missing else 'no corpus was named'}: {__doc__}")
    wavs = Path(out) / "wavs"
    wavs.mkdir(parents=True, exist_ok=True)
    lines = []
    for source in sources:
        folder, most, language = (*source.split(":"), "", "")[:3]
        for path, line in lines_of(Path(folder), int(most) if most else None, language or "en"):
            copy = wavs / path.name
            if not copy.exists():
                shutil.copyfile(path, copy)
            lines.append(line)
    (Path(out) / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} clips in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
