"""Mutated metadata and mutated audio through `prepare`: no crash, no hang, every line kept or refused with a reason."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import soundfile

from myxtts.data.prepare import prepare
from myxtts.data.prepared import REFUSED, open_prepared
from myxtts.errors import DataError
from tests.corpus_maker import make_ljspeech, settings, tone

METADATA_CASES = 2000
WAV_CASES = 500
NASTY = [
    b"|", b"||||||", b"\n", b"\r\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x81", b"../", b"/etc/passwd",
    "سلام".encode(), "١٢٣".encode(), "\u202e\u200f\u200d".encode(), "😀".encode(), b"\xed\xa0\x80", b"\t", b'"', b"'",
    b"9" * 400, b"1e999", b"%s%n", b"$(reboot)", b"clip_0", b"{}", b"\x1b[2J", b"\xc3", "İß".encode(), b" " * 50,
]  # fmt: skip


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few random edits: flips, cuts, repeats, and strings that have broken parsers before."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 2:
            data[at:at] = rng.choice(NASTY)
        elif kind == 3:
            data[at:at] = data[: rng.randint(0, 60)]
        else:
            data = data[:at] if rng.random() < 0.1 else data
    return bytes(data)


def explained(folder: Path) -> list[dict[str, object]]:
    refusals = [json.loads(line) for line in (folder / REFUSED).read_text(encoding="utf-8").splitlines()]
    assert all(refusal["reason"] and refusal["file"] and refusal["line"] >= 0 for refusal in refusals)
    return refusals


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "frontend"), [(0, "characters"), (1, "characters"), (2, "bpe"), (3, "phonemes")])
def test_mutated_metadata_is_prepared_or_refused_line_by_line(
    tmp_path: Path, batch: int, frontend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Real fsyncs of 500 tiny corpora take minutes on a slow disk, and no case here loses its power.
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    texts = {"Hello there.": "en", "سلام دنیا": "fa", "Grüße, 12 Äpfel!": "de"}
    lines = [f"clip_{n}|{text}|{text}|anna|{language}" for n, (text, language) in enumerate(texts.items())]
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[0.5] * 3, lines=lines)
    whole = (corpus / "metadata.csv").read_bytes()
    config = settings(tmp_path, max_refused_share=1.0, text_frontend=frontend)
    rng = random.Random(batch)
    outcomes = {"prepared": 0, "refused as a whole": 0}
    for case in range(METADATA_CASES // 4):
        (corpus / "metadata.csv").write_bytes(mutated(whole, rng))
        try:
            prepared = prepare(corpus, config, out=tmp_path / "out", workers=1, force=True)
        except DataError as error:
            assert error.problem, case
            assert error.hint, case
            outcomes["refused as a whole"] += 1
            continue
        outcomes["prepared"] += 1
        explained(prepared.path)
        assert all(prepared.read(clip).id.casefold().startswith("clip_") for clip in range(len(prepared)))

    assert outcomes["prepared"] > 100


def test_mutated_wavs_are_prepared_or_refused_clip_by_clip(tmp_path: Path) -> None:
    rng = random.Random(5)
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[0.6])
    sources = []
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "IMA_ADPCM"):
        soundfile.write(tmp_path / f"{subtype}.wav", tone(0.6), 22050, subtype=subtype)
        sources.append((tmp_path / f"{subtype}.wav").read_bytes())
    lines = ["clip_0|Sound.|Sound."]
    for number in range(WAV_CASES):
        source = rng.choice(sources)
        head, body = source[:200], source[200:]
        # Headers are where parsers break; half of the cases leave the samples alone.
        content = mutated(head, rng) + body if number % 2 else mutated(source, rng)
        (corpus / "wavs" / f"m{number}.wav").write_bytes(content)
        lines.append(f"m{number}|Mutated.|Mutated.")
    (corpus / "metadata.csv").write_text("\n".join(lines))

    prepared = prepare(corpus, settings(tmp_path, max_refused_share=1.0), workers=2)

    refused = explained(prepared.path)
    assert len(prepared) + len(refused) == WAV_CASES + 1
    assert len(refused) > 50
    assert len(prepared) > 50
    reopened = open_prepared(prepared.path)
    assert all(len(reopened.read(clip).wave) for clip in range(len(reopened)))
