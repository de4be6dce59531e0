"""Forced alignment of a corpus: for every code of every clip the index of the token that is spoken then.

A small CTC network is trained on the corpus once, before the first stage that needs it; it and its forced alignments
are stored beside the shards under a key of everything that they depend on, so later runs and resumed ones read the
same. Language tokens, spaces, stress marks and punctuation have no CTC label: every code belongs to a token with a
sound.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import padded_rows
from myxtts.config.data import DataConfig
from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.batching import BatchSource, batches
from myxtts.data.prepared import PreparedCorpus
from myxtts.files import DAMAGED_ARRAYS, replacing, writing
from myxtts.models.ctc_paths import error_rate, forced_paths, greedy_labels, labels_of_codes
from myxtts.runtime.seeds import keep_drawing_order
from myxtts.text.tokenizer import Tokenizer
from myxtts.training.run_folder import disk_full_hint

logger = logging.getLogger(__name__)

ALIGNER_STEPS = 350
"""With 16 clips each: four passes over an hour of speech, about 70 CPU-seconds. More speech has as many passes."""
ALIGNER_CLIPS = 16
ALIGNER_EPOCHS = 4
FINE_TUNING_STEPS = 100
"""Of an aligner that starts from a voice's: it knows the sounds, and learns the speaker."""
_CLIPS_AT_ONCE = 32
_CHECKED_CLIPS = 64
_SEED = 7
_VERSION = 1

Progress = Callable[[str, int, int], None]
"""Called with the name of the task, how much is done and how much there is."""


def alignments_of(
    train: PreparedCorpus,
    clips: NDArray[np.integer],
    others: Sequence[PreparedCorpus] = (),
    *,
    steps: int,
    device: str,
    should_stop: Callable[[], bool],
    progress: Progress = lambda task, done, total: None,
    initial: Path | None = None,
) -> list[Alignments] | None:
    """Alignments of the training corpus and of others with its tokenizer: as stored, or made by an aligner of `clips`.

    `initial` is the file of an aligner to start from. None when it was asked to stop before they were complete. A
    trained network and the clips aligned by then are stored: the next run goes on from there.
    """
    key = _key(train, clips, _aligner_steps(train, clips, steps, initial), initial)
    corpora = [train, *(other for other in others if other.path != train.path)]
    paths = [corpus.path / f"alignment-{key}.npz" for corpus in corpora]
    stored = [_load(path) for path in paths]
    if all(one is not None for one in stored):
        logger.info("Alignments: read from %s", paths[0])
        return [one for one in stored if one is not None]
    import tensorflow as tf

    with tf.device(device):
        aligner = aligner_of(train, clips, steps=steps, should_stop=should_stop, progress=progress, initial=initial)
        if aligner is None:
            return None
        found = []
        for path, one, corpus in zip(paths, stored, corpora, strict=True):
            aligned = one or aligner.align(corpus, _unfinished_path(path), should_stop, progress)
            if aligned is None:
                return None
            _write(path, tokens=aligned.tokens, starts=aligned.starts)
            found.append(aligned)
    for path in paths:
        _unfinished_path(path).unlink(missing_ok=True)
    return found


def aligner_of(
    train: PreparedCorpus,
    clips: NDArray[np.integer],
    *,
    steps: int,
    should_stop: Callable[[], bool],
    progress: Progress = lambda task, done, total: None,
    initial: Path | None = None,
) -> Aligner | None:
    """The aligner of a corpus, on the current device: read from beside the shards, or trained now from `initial`.

    None when it was asked to stop before that; one whose training was complete is stored even then.
    """
    aligner = Aligner(train.tokenizer)
    steps = _aligner_steps(train, clips, steps, initial)
    path = _network_path(train, clips, steps, initial)
    if not aligner.restore(path):
        if initial is not None:
            aligner.restore(initial)
        if not aligner.learn(train, clips, steps, should_stop, progress):
            return None
        aligner.save(path)
        if should_stop():
            return None
    return aligner


class Aligner:
    """A CTC network and the tokens that its labels stand for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import tensorflow as tf

        from myxtts.audio.mel import MelSpectrogram
        from myxtts.models.aligner import CTCNetwork, seeded

        self._label_of = tokenizer.spoken_labels()
        self._mel = MelSpectrogram()
        # Alignments of an earlier run need no network: what the run draws next must not depend on that.
        with keep_drawing_order():
            self.network = seeded(CTCNetwork(int(self._label_of.max()) + 1), _SEED)
        self._logits = tf.function(self.network, autograph=False, reduce_retracing=True)

    def learn(
        self,
        prepared: PreparedCorpus,
        clips: NDArray[np.integer],
        steps: int,
        should_stop: Callable[[], bool],
        progress: Progress,
    ) -> bool:
        """Train, and log the token error rate on some of the training clips; `False` if asked to stop on the way."""
        from myxtts.models.aligner import fit

        logger.info("Aligner: training for %d steps", steps)
        source = batches(prepared, config=DataConfig(batch_size=ALIGNER_CLIPS), seed=_SEED, clips=np.asarray(clips))
        losses = fit(self.network, self._until(source, steps, should_stop, progress), steps=steps)
        source.close()
        if len(losses) < steps:
            return False
        wanted: list[list[int]] = []
        decoded: list[list[int]] = []
        for logits, labels, _ in self.logits_of(prepared, clips[:_CHECKED_CLIPS]):
            decoded.append(greedy_labels(logits))
            wanted.append([int(label) for label in labels])
        error = error_rate(wanted, decoded)
        logger.info("Aligner: loss %.3f, token error rate %.1f %%", losses[-1], 100 * error)
        return True

    def save(self, path: Path) -> None:
        _write(path, **{f"{number:04d}": weight.numpy() for number, weight in enumerate(self.network.weights)})

    def restore(self, path: Path) -> bool:
        """Load the weights that `save` stored; `False` where there are none that can be read, or none that fit."""
        stored = read_stored(path, [f"{number:04d}" for number in range(len(self.network.weights))])
        if stored is None:
            return False
        if [value.shape for value in stored] != [tuple(weight.shape) for weight in self.network.weights]:
            logger.warning("%s is of another aligner and is not used", path)
            return False
        for weight, value in zip(self.network.weights, stored, strict=True):
            weight.assign(value)
        logger.info("Aligner: read from %s", path)
        return True

    def _until(
        self, source: BatchSource, steps: int, should_stop: Callable[[], bool], progress: Progress
    ) -> Iterator[Any]:
        for number, labelled in enumerate(self.labelled(source)):
            if should_stop():
                return
            progress("training the aligner, steps", number, steps)
            yield labelled

    def labelled(self, source: BatchSource) -> Iterator[Any]:
        """Batches to learn from: mels, and the labels of their texts."""
        from myxtts.models.aligner import Labelled

        for batch in source:
            mel_BTM, lengths_B = self._mel(batch["wave"], batch["wave_lengths"])
            rows = zip(batch["text"], batch["text_lengths"], strict=True)
            yield Labelled(mel_BTM, lengths_B, [self._labels(text[:length])[0] for text, length in rows])

    def _labels(self, text: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Labels of a text, and the index in the text of each."""
        labels = self._label_of[text]
        places = np.flatnonzero(labels >= 0)
        return labels[places], places

    def align(
        self, prepared: PreparedCorpus, unfinished: Path, should_stop: Callable[[], bool], progress: Progress
    ) -> Alignments | None:
        """The likeliest alignment of every clip of a corpus, from what is in the file `unfinished` on.

        None when asked to stop; the clips aligned by then are written to `unfinished`.
        """
        codes = codes_of(np.asarray(prepared.index.wave_samples, np.int64))
        starts = np.concatenate([[0], np.cumsum(codes)])
        tokens = np.zeros(starts[-1], np.uint16)
        # Neighbours in length share a batch, or short clips would pay for long ones.
        order = np.argsort(codes, kind="stable")
        done = 0
        if (stored := read_stored(unfinished, ["tokens", "done"])) is not None:
            tokens, done = stored[0].copy(), int(stored[1])
        for first in range(done, len(order), _CLIPS_AT_ONCE):
            if should_stop():
                _write(unfinished, tokens=tokens, done=np.int64(first))
                return None
            progress("aligning clips", first, len(order))
            chosen = order[first : first + _CLIPS_AT_ONCE]
            rows = list(self.logits_of(prepared, chosen))
            longest = max(len(logits) for logits, _, _ in rows)
            padded = np.stack([np.pad(row[0], [(0, longest - len(row[0])), (0, 0)]) for row in rows])
            paths = forced_paths(padded, np.array([len(row[0]) for row in rows]), [row[1] for row in rows])
            for clip, path, (_, labels, places) in zip(chosen, paths, rows, strict=True):
                if len(labels):
                    tokens[starts[clip] : starts[clip + 1]] = places[labels_of_codes(path, codes[clip])]
        return Alignments(tokens, starts)

    def logits_of(self, prepared: PreparedCorpus, clips: NDArray[np.integer]) -> Iterator[tuple[Any, Any, Any]]:
        """Logits, labels and their places in the text, clip by clip."""
        from myxtts.models.aligner import steps_of

        for first in range(0, len(clips), _CLIPS_AT_ONCE):
            read = [prepared.read_arrays(int(clip)) for clip in clips[first : first + _CLIPS_AT_ONCE]]
            mel_BTM, mel_lengths_B = self._mel(*padded_rows([wave for wave, _ in read]))
            logits_BFK = self._logits(mel_BTM, mel_lengths_B).numpy()
            for row, (_, text) in enumerate(read):
                yield logits_BFK[row, : int(steps_of(int(mel_lengths_B[row])))], *self._labels(text)


def kept_network(prepared: PreparedCorpus, clips: NDArray[np.integer], steps: int, initial: Path | None) -> Path:
    """The file beside the shards that has the aligner of a stage of so many steps, once it is trained."""
    return _network_path(prepared, clips, _aligner_steps(prepared, clips, steps, initial), initial)


def write_grown(path: Path, source: Path, old: Tokenizer, new: Tokenizer) -> None:
    """An aligner of one vocabulary for another: sounds that are new to it begin as unlikely as its least likely one.

    Nothing is written where the file cannot be read: the aligner then starts from nothing.
    """
    try:
        with np.load(source) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except DAMAGED_ARRAYS as error:
        logger.warning("%s cannot be read (%s): the aligner is trained from nothing", source, error)
        return
    was, now = old.spoken_labels(), new.spoken_labels()
    ids = {token: number for number, token in enumerate(old.tokens())}
    known = [
        was[ids[token]] if token in ids else -1 for token, label in zip(new.tokens(), now, strict=True) if label >= 0
    ]
    labels = int(was.max()) + 1
    for name, value in arrays.items():
        if value.shape[-1] == labels + 1:
            columns = [value[..., label] if label >= 0 else value[..., :labels].min(-1) for label in known]
            arrays[name] = np.stack([*columns, value[..., labels]], -1)
    _write(path, **arrays)


def _key(prepared: PreparedCorpus, clips: NDArray[np.integer], steps: int, initial: Path | None = None) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(clips, "<i8").tobytes())
    if initial is not None:
        digest.update(initial.read_bytes())
    digest.update(json.dumps([prepared.fingerprint, steps, _VERSION, _SEED]).encode())
    return digest.hexdigest()[:16]


def _aligner_steps(
    prepared: PreparedCorpus, clips: NDArray[np.integer], steps: int, initial: Path | None = None
) -> int:
    """Training steps of the aligner for a stage of `steps` steps: as many at most, or those of a stored network.

    A stage that is resumed finds the network that it began with first, also where a longer stage has trained another.
    """
    fewest = ALIGNER_STEPS if initial is None else FINE_TUNING_STEPS
    whole = max(fewest, ALIGNER_EPOCHS * len(clips) // ALIGNER_CLIPS)
    brief = min(steps, whole)
    stored = [length for length in (brief, whole) if _network_path(prepared, clips, length, initial).is_file()]
    return (stored or [brief])[0]


def _unfinished_path(path: Path) -> Path:
    return path.with_suffix(".part.npz")


def _network_path(
    prepared: PreparedCorpus, clips: NDArray[np.integer], steps: int, initial: Path | None = None
) -> Path:
    return prepared.path / f"alignment-{_key(prepared, clips, steps, initial)}.network.npz"


def _load(path: Path) -> Alignments | None:
    stored = read_stored(path, ["tokens", "starts"])
    return Alignments(*stored) if stored is not None else None


def read_stored(path: Path, names: Sequence[str]) -> list[NDArray[Any]] | None:
    """The named arrays of a file; None where the file is missing, damaged or cannot be read."""
    if not path.is_file():
        return None
    try:
        with np.load(path) as stored:
            return [stored[name] for name in names]
    except (OSError, *DAMAGED_ARRAYS) as error:
        logger.warning("%s cannot be read (%s): the corpus is aligned again", path, error)
        return None


def _write(path: Path, **arrays: Any) -> None:
    with (
        writing(path.parent, hint=disk_full_hint("--cache-dir")),
        replacing(path) as temporary,
        temporary.open("wb") as file,
    ):
        np.savez_compressed(file, **arrays)
