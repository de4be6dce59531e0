"""What is spoken for an evaluation: held-out clips of a corpus, or texts of one's own in the corpus's voices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import from_int16
from myxtts.config.data import DataConfig
from myxtts.data.prepared import PreparedCorpus
from myxtts.errors import DataError
from myxtts.evaluation.evaluate import Item


def holds_all_out(config: DataConfig, data: Path, *, trained_on_all: bool = False) -> bool:
    """Whether the run kept this whole folder from training, with --val-data; False where it held out single clips.

    A run with --val-data was trained on every clip of its training folder, and knows no other. An exported voice names
    no folder: `trained_on_all` says that it comes of such a run. Raises `DataError` where it may have been trained on
    clips of `data`.
    """
    if config.val_data is None and trained_on_all:
        raise DataError(
            f"whether the voice was trained on {data} is not known: it was exported from a run with --val-data, which "
            "trains on every clip of its training folder",
            hint="evaluate with --all-clips on that --val-data folder, or on a corpus that it was not trained on",
        )
    if config.val_data is None:
        return False
    is_val = _is_same(config.val_data, data)
    is_train = config.train_data is not None and _is_same(config.train_data, data)
    if is_val and not is_train:
        return True
    trained = f"the voice was trained on every clip of {data}"
    problem = trained if is_train else f"the voice's run held out no clip of {data}"
    other = "" if is_val else f"--data {config.val_data}, or "
    raise DataError(
        f"{problem}: it was trained with --val-data {config.val_data}",
        hint=f"evaluate with {other}--all-clips on a corpus that it was not trained on",
    )


def refuse_other_clips(config: DataConfig, data: Path, *, trained_on: Sequence[str], now: str | None) -> None:
    """Raise `DataError` where the corpus is not the one that the voice was trained on, or has changed since.

    Clips are held out by their number: once clips came or went, most that have the numbers were trained on.
    `trained_on` and `now` are clip lists (`PreparedCorpus.clip_list`). Voices and prepared folders of earlier versions
    have none, and are taken as they are; so is a folder that the run does not know.
    """
    if not trained_on or now is None or set(trained_on) == {now}:
        return
    hint = "evaluate on another corpus with --all-clips; on this one, --all-clips takes all clips"
    if config.train_data is None:
        raise DataError(
            f"whether the voice was trained on clips of {data} is not known: it was exported, and these are not the "
            "clips that it was trained on, or not all of them",
            hint=f"{hint}, trained ones too",
        )
    if _is_same(config.train_data, data):
        raise DataError(
            f"{data} has other clips than when the voice was trained on it: added, removed, recorded anew or in "
            "another order; most of those that would be held out now were trained on then",
            hint=f"put the corpus back as it was, or {hint}, most of which were trained on",
        )


def _is_same(folder: str, data: Path) -> bool:
    return Path(folder).resolve() == data.resolve()


def held_out_items(prepared: PreparedCorpus, limit: int, *, all_clips: bool = False, group: str = "") -> list[Item]:
    """Clips that training held out (one of 20), or all, each with another clip of its speaker as the reference."""
    trained, held_out = prepared.split()
    chosen = np.arange(len(prepared)) if all_clips else held_out
    if len(chosen) == 0:
        raise DataError(f"{prepared.path} holds no clip out", hint="evaluate with --all-clips, or on a larger corpus")
    references = _references(prepared, trained if len(trained) else chosen)
    items = []
    for clip in _evenly(chosen, limit):
        record = prepared.read(int(clip))
        reference = _another(references.get(record.speaker, []), int(clip))
        items.append(
            Item(
                id=record.id,
                text=record.text,
                language=record.language,
                speaker=record.speaker,
                reference=from_int16(prepared.read(reference).wave if reference is not None else record.wave),
                real=from_int16(record.wave),
                group=group,
            )
        )
    return items


def text_items(prepared: PreparedCorpus, texts: Sequence[str], language: str, *, group: str = "") -> list[Item]:
    """Each text in the next of the corpus's voices."""
    name = group.replace(" ", "-") or "text"
    references = _references(prepared, prepared.split()[0])
    speakers = list(references)
    items = []
    for number, text in enumerate(texts):
        speaker = speakers[number % len(speakers)]
        wave = from_int16(prepared.read(references[speaker][0]).wave)
        items.append(
            Item(
                id=f"{name}-{number + 1:03d}",
                text=text,
                language=language,
                speaker=speaker,
                reference=wave,
                group=group,
            )
        )
    return items


def _references(prepared: PreparedCorpus, clips: NDArray[np.int64]) -> dict[str, list[int]]:
    """For each speaker a few clips, longest first."""
    samples = np.asarray(prepared.index.wave_samples)[clips].astype(np.int64)
    speaker_of_clip = np.asarray(prepared.index.speaker)[clips]
    found: dict[str, list[int]] = {}
    for number in np.unique(speaker_of_clip):
        own = np.flatnonzero(speaker_of_clip == number)
        order = own[np.argsort(-samples[own], kind="stable")]
        found[prepared.speakers[int(number)]] = [int(clips[place]) for place in order[:4]]
    return found


def _another(clips: Sequence[int], than: int) -> int | None:
    return next((clip for clip in clips if clip != than), None)


def _evenly(clips: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """At most `limit`, from all over the corpus: its order may go by speaker."""
    if len(clips) <= limit:
        return clips
    chosen_evenly: NDArray[np.int64] = clips[np.linspace(0, len(clips) - 1, limit).round().astype(np.int64)]
    return chosen_evenly
