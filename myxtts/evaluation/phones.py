"""Phone error: a phone recogniser that is trained on the real clips of a corpus.

It shares nothing with the model that is evaluated: own weights, own seed, trained on recordings only, never on what a
model spoke. Phones are IPA letters; stress, length and other marks, spaces and punctuation are not compared. Clips that
the prepared corpus holds out are never trained on, so the recogniser's own error on those is its floor.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import from_int16, padded_rows
from myxtts.audio.mel import MelSpectrogram
from myxtts.data.prepared import PreparedCorpus
from myxtts.errors import DamagedError, DataError
from myxtts.evaluation.scoring import phones_of
from myxtts.files import DAMAGED_ARRAYS, replacing, writing
from myxtts.models.aligner import CTCNetwork, Labelled, fit, seeded, steps_of
from myxtts.models.ctc_paths import greedy_labels

logger = logging.getLogger(__name__)

DEFAULT_STEPS = 500
DEFAULT_SEED = 1234
_WIDTH = 160
_CLIPS_AT_ONCE = 16
_VERSION = 2

Progress = Callable[[int, int], None]
"""Called with how many steps are done, of how many."""


class SpokenClip(NamedTuple):
    """A recording and its IPA text."""

    wave: NDArray[np.float32]
    ipa: str
    language: str


def read_ipa(folder: str | Path) -> dict[str, str]:
    """The IPA text of each clip by its id, from the `phonemes.csv` (id|ipa) of a corpus, as the demo corpus has one."""
    listing = Path(folder) / "phonemes.csv"
    if not listing.is_file():
        raise DataError(f"{listing} is not there", hint="make the corpus with `myxtts demo-corpus DIR`")
    try:
        content = listing.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{listing} cannot be read: {error}", hint="it must be UTF-8 text: id|ipa") from error
    lines = [line.split("|", 1) for line in content.splitlines() if line]
    return {line[0]: line[-1] for line in lines}


def training_clips(prepared: PreparedCorpus, ipa_of: Mapping[str, str]) -> Iterator[SpokenClip]:
    """All that the corpus does not hold out, found by their ids: clips are numbered without those that were refused."""
    return spoken_clips(prepared, prepared.split()[0], ipa_of)


def spoken_clips(prepared: PreparedCorpus, clips: Iterable[int], ipa_of: Mapping[str, str]) -> Iterator[SpokenClip]:
    """Those of the clips whose IPA text is known."""
    for clip in clips:
        record = prepared.read(int(clip))
        if record.id in ipa_of:
            yield SpokenClip(from_int16(record.wave), ipa_of[record.id], record.language)


class PhoneRecogniser:
    """Phones of waves at 22.05 kHz, in the languages of the recordings that it was trained on."""

    name = "a recogniser trained on the corpus's own recordings"

    def __init__(self, phones: Sequence[str], *, seed: int = DEFAULT_SEED) -> None:
        import tensorflow as tf

        self.phones = list(phones)
        self.languages: frozenset[str] = frozenset()
        self._label_of = {phone: number for number, phone in enumerate(self.phones)}
        self._mel = MelSpectrogram()
        self._network = seeded(CTCNetwork(len(self.phones), width=_WIDTH, name="phone_recogniser"), seed)
        self._logits = tf.function(self._network, autograph=False, reduce_retracing=True)

    def train(
        self,
        clips: Iterable[SpokenClip],
        *,
        steps: int = DEFAULT_STEPS,
        seed: int = DEFAULT_SEED,
        progress: Progress | None = None,
    ) -> None:
        """Train on recordings; mels are kept in memory, 100 MB an hour."""
        mels, labels, languages = [], [], set()
        for clip in clips:
            mels.append(self._mel_of(clip.wave))
            labels.append(self._labels(clip.ipa))
            languages.add(clip.language)
        if not mels:
            raise DataError(
                "there is no recording to train the phone recogniser on: phonemes.csv names none of the training clips",
                hint="give it the ids of the corpus's clips, or evaluate with --no-phones",
            )
        self.languages = frozenset(languages)
        batches = _shuffled(mels, labels, np.random.default_rng(seed))
        losses = fit(self._network, batches if progress is None else _counted(batches, steps, progress), steps=steps)
        logger.info("Phone recogniser: loss %.3f after %d steps", losses[-1], steps)

    def recognise(self, waves: Sequence[NDArray[np.floating[Any]]]) -> list[list[str]]:
        """The phones of each wave, in order."""
        recognised = []
        for wave in waves:
            mel_TM = self._mel_of(wave)
            logits_BFK = self._logits(mel_TM[None], np.array([len(mel_TM)], np.int32)).numpy()
            recognised.append([self.phones[label] for label in greedy_labels(logits_BFK[0, : steps_of(len(mel_TM))])])
        return recognised

    def _mel_of(self, wave: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        samples = np.asarray(wave, np.float32)
        mel_BTM, lengths_B = self._mel(samples[None], np.array([len(samples)], np.int32))
        mel_TM: NDArray[np.float32] = mel_BTM.numpy()[0, : int(lengths_B[0])]
        return mel_TM

    def _labels(self, ipa: str) -> NDArray[np.int32]:
        return np.array([self._label_of[phone] for phone in phones_of(ipa)], np.int32)

    def save(self, path: Path) -> None:
        weights = {f"weight_{number:03d}": v.numpy() for number, v in enumerate(self._network.weights)}
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, phones=np.array(self.phones), languages=np.array(sorted(self.languages)), **weights)

    @classmethod
    def load(cls, path: Path) -> PhoneRecogniser:
        """As `save` stored it; a file that is damaged is a `DamagedError`, one that cannot be read a `DataError`."""
        try:
            with np.load(path) as stored:
                recogniser = cls([str(phone) for phone in stored["phones"]])
                recogniser.languages = frozenset(str(language) for language in stored["languages"])
                for number, variable in enumerate(recogniser._network.weights):
                    variable.assign(stored[f"weight_{number:03d}"])
        except DAMAGED_ARRAYS as error:
            raise DamagedError(f"{path} is damaged: {error}", hint="remove it: it is made again") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}", hint="check the disk") from error
        return recogniser


def recogniser_of(
    folder: str | Path,
    prepared: PreparedCorpus,
    cache: Path,
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = DEFAULT_SEED,
    progress: Progress | None = None,
) -> PhoneRecogniser:
    """The recogniser of a corpus, from the cache where it was trained before."""
    ipa_of = read_ipa(folder)
    held_out_ids = [prepared.read(int(clip)).id for clip in prepared.split()[1]]
    known = repr([sorted(ipa_of.items()), held_out_ids, steps, seed, _VERSION])
    key = hashlib.sha256(known.encode()).hexdigest()[:16]
    path = cache / f"phones-{key}.npz"
    if path.is_file():
        try:
            return PhoneRecogniser.load(path)
        except DamagedError as error:
            logger.warning("%s; the recogniser is trained again", error.problem)
    recogniser = PhoneRecogniser(sorted({phone for ipa in ipa_of.values() for phone in phones_of(ipa)}), seed=seed)
    recogniser.train(training_clips(prepared, ipa_of), steps=steps, seed=seed, progress=progress)
    with writing(path):
        cache.mkdir(parents=True, exist_ok=True)
        recogniser.save(path)
    return recogniser


def _counted(batches: Iterator[Labelled], steps: int, progress: Progress) -> Iterator[Labelled]:
    for number, batch in enumerate(batches, 1):
        progress(number, steps)
        yield batch


def _shuffled(
    mels: Sequence[NDArray[np.float32]], labels: Sequence[NDArray[np.int32]], random: np.random.Generator
) -> Iterator[Labelled]:
    """Endless batches of neighbours in length, in a new order each epoch, each mel with noise and blur."""
    by_length = np.argsort([len(mel) for mel in mels], kind="stable")
    groups = [by_length[first : first + _CLIPS_AT_ONCE] for first in range(0, len(by_length), _CLIPS_AT_ONCE)]
    while True:
        for group in random.permutation(len(groups)):
            chosen = groups[group]
            batch, lengths = padded_rows([_worsened(mels[clip], random) for clip in chosen])
            yield Labelled(batch, lengths, [labels[clip] for clip in chosen])


def _worsened(mel_TM: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Noise, and half of the time a blur over time: what a codec and Griffin-Lim do to speech."""
    if random.random() < 0.5:
        padded = np.pad(mel_TM, [(1, 1), (0, 0)], mode="edge")
        mel_TM = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    noise = random.standard_normal(mel_TM.shape, np.float32) * np.float32(0.4 * random.random())
    worse: NDArray[np.float32] = mel_TM + noise
    return worse
