"""The folder of a run: what lies where, that one process at a time writes it, and starting afresh."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myxtts.config import earlier
from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.loading import as_plain_values
from myxtts.config.strict_yaml import read_strict_yaml
from myxtts.config.training import STAGE_STEPS, Stage
from myxtts.errors import CheckpointError, ConfigError, TrainingError
from myxtts.files import make_folder, try_lock, writing
from myxtts.synthesis.voice import VOICE_FOLDER
from myxtts.training.checkpoint import EARLIER
from myxtts.training.stages import stage_names

if TYPE_CHECKING:
    from myxtts.data.prepared import PreparedCorpus
    from myxtts.text.tokenizer import Tokenizer
    from myxtts.training.stages.spec import StageSpec

logger = logging.getLogger(__name__)


def disk_full_hint(flag: str = "--run-dir") -> str:
    """The way out where something of a run cannot be written."""
    return (
        f"free disk space, or move that folder to a disk that has some and name it with {flag}; "
        "the same command continues from the last checkpoint"
    )


def with_absolute_paths(data: DataConfig) -> DataConfig:
    """The settings with the corpora's whole paths: later commands may be called from another working directory."""
    train, val = (None if path is None else str(Path(path).absolute()) for path in (data.train_data, data.val_data))
    return dataclasses.replace(data, train_data=train, val_data=val)


def without_same_validation_folder(data: DataConfig) -> DataConfig:
    """The settings without a validation folder that is the training folder: every clip of it would be learnt."""
    if data.train_data is None or data.val_data is None:
        return data
    if Path(data.train_data).resolve() != Path(data.val_data).resolve():
        return data
    logger.warning(
        "--val-data is the folder of --train-data: one clip of every 20 of %s is held out, as without --val-data",
        data.train_data,
    )
    return dataclasses.replace(data, val_data=None)


class RunFolder:
    """Paths of a run; nothing is created before `lock`."""

    def __init__(self, path: str | Path, checkpoint_dir: str | Path | None = None) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.events = self.path / "events.jsonl"
        self.samples = self.path / "samples"
        self.voice = self.path / VOICE_FOLDER
        self.tensorboard = self.path / "tensorboard"
        self.initial_aligner = self.path / "initial_aligner.npz"
        """What a fine-tuning's aligner began as: a resumed run must find the same."""
        self._checkpoints = Path(checkpoint_dir) if checkpoint_dir is not None else self.path / "checkpoints"

    def checkpoints(self, stage: Stage) -> Path:
        return self._checkpoints / stage

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold all that the run writes, its checkpoints wherever they are; a second run in any of it is refused.

        The locks go with the process, however it ends.
        """
        with ExitStack() as held:
            held.enter_context(_locked(self.path, "--run-dir"))
            if not _is_same(self.path, self._checkpoints):
                held.enter_context(_locked(self._checkpoints, "--checkpoint-dir"))
            yield

    def has_saved(self) -> bool:
        """Whether a run got as far as saving something here, which another one must fit to be its continuation."""
        saved = self.voice.exists() or any(self._checkpoints.glob("*/step-*"))
        return self.config.is_file() and saved

    def saved_checkpoints(self) -> frozenset[str]:
        """The names of all checkpoints, with their stages."""
        return frozenset(f"{path.parent.name}/{path.name}" for path in self._checkpoints.glob("*/step-*"))

    def saved_settings(self) -> dict[str, Any]:
        """The settings of `config.yaml`, by part."""
        try:
            saved = read_strict_yaml(self.config)
        except ConfigError:
            saved = None
        if not isinstance(saved, dict):
            raise CheckpointError(
                f"{self.config} is empty or damaged",
                hint="remove it and run the same command again: the checkpoints know their settings too",
            )
        return saved

    def start_afresh(self) -> Path | None:
        """Move everything of earlier runs into a folder of its own, and name it."""
        aside = self.path / f"{EARLIER}{time.strftime('%Y%m%d-%H%M%S')}"
        # Checkpoints first: they may be on another file system, where moving is copying and can fail. Their folder may
        # be one of the user's own, with other things in it.
        moves = {self.checkpoints(stage): aside / self._checkpoints.name / stage for stage in stage_names()}
        others = (self.config, self.events, self.samples, self.voice, self.tensorboard, self.path / "report.html")
        moves |= {path: aside / path.name for path in others}
        earlier = {path: target for path, target in moves.items() if path.exists()}
        if not earlier:
            return None
        try:
            for path, target in earlier.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
        except OSError as error:
            raise TrainingError(
                f"the earlier run cannot be moved to {aside}: {error}",
                hint="free disk space there, or choose another --run-dir instead of --fresh",
            ) from error
        return aside


@contextmanager
def _locked(folder: Path, flag: str) -> Iterator[None]:
    try:
        make_folder(folder)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TrainingError(f"{folder} cannot be written: {error.strerror}", hint=f"choose another {flag}") from error
    try:
        with writing(folder, hint=disk_full_hint(flag)):
            is_ours = try_lock(descriptor, folder / ".lock")
        if not is_ours:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            watch = f"; watch it: myxtts monitor {folder}" if flag == "--run-dir" else ""
            raise TrainingError(
                f"another run (process {owner}) is writing {folder}",
                hint=f"wait for it, stop it, or choose another {flag}{watch}",
            )
        with writing(folder, hint=disk_full_hint(flag)):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


_MAY_CHANGE = {
    "data": {
        "num_workers",
        "buffer_size",
        "model_start_delay",
        "data_gpu",
        "model_gpu",
        "cache_dir",
        "train_data",
        "val_data",
    },
    "model": {"dropout"},
    "training": {
        *("run_dir", "checkpoint_dir", "keep", "checkpoint_every", "validate_every", "samples", "stage", "log_every"),
        *("multi_gpu", "visible_gpus", "simulate_gpus", "cpu_threads"),
        *("cluster", "data_workers", "model_workers", "max_restarts", "elastic"),
        *("enable_memory_isolation", "data_gpu_memory", "model_gpu_memory"),
        *("epochs", "max_steps", *STAGE_STEPS, "discriminator_start"),
        *("learning_rate", "mixed_precision", "optimization_level", "jit_compile", "tf32", "deterministic"),
    },
}
"""Settings that a continued run may change: devices, pace and places, not what is learnt from which data."""


def refuse_other_configuration(saved: dict[str, Any], config: XTTSConfig, where: Path) -> None:
    """A run continues only with the settings that its weights and its data order depend on."""
    before = {part: earlier.settings_of(settings) for part, settings in saved.items()}
    differences = [
        f"{name}: {_shown(before[part][name])} in the run, {_shown(value)} now"
        for part, settings in as_plain_values(config).items()
        for name, value in settings.items()
        if name not in _MAY_CHANGE[part] and name in before.get(part, {}) and before[part][name] != value
    ]
    if differences:
        raise CheckpointError(
            f"{where} was started with other settings: {'; '.join(differences)}",
            hint="give the same settings, choose another --run-dir, or start over with --fresh",
        )


def _shown(value: object) -> str:
    return "the default" if value is None else repr(value)


def corpus_marks(prepared: PreparedCorpus) -> dict[str, str | None]:
    """What a checkpoint keeps of the corpus that its weights learnt from."""
    return {
        "corpus": prepared.fingerprint,
        "clips": prepared.clip_list,
        "vocabulary": _vocabulary_digest(prepared.tokenizer),
    }


def refuse_other_corpus(
    saved: Mapping[str, Any], prepared: PreparedCorpus, spec: StageSpec, train_data: str | None, where: Path
) -> None:
    """Other clips in a folder of another name are another corpus; in the same folder clips come and go, which is only
    said. Text weights know tokens by number, so the vocabulary must be the same where the stage reads texts.
    Checkpoints without marks are taken as they are.
    """
    now = corpus_marks(prepared)
    began_on = saved.get("config", {}).get("data", {}).get("train_data")
    renamed = began_on and train_data and Path(began_on).name != Path(train_data).name
    if renamed and saved.get("clips", now["clips"]) != now["clips"]:
        raise CheckpointError(
            f"{where} was trained on {began_on}, and --train-data is {train_data}",
            hint="choose another --run-dir, or start over with --fresh; to teach this voice the new recordings, "
            "name its run with --init-from and choose another --run-dir",
        )
    if spec.features.text and saved.get("vocabulary", now["vocabulary"]) != now["vocabulary"]:
        raise _other_vocabulary(where)
    if saved.get("corpus", now["corpus"]) != now["corpus"]:
        logger.warning(
            "The corpus is not as it was when %s was written: stage %s goes on with it. Where clips came or went, "
            "other clips are held out than before, and validation hears some that were learnt",
            where,
            spec.name,
        )


def refuse_other_vocabulary(saved: Tokenizer, now: Tokenizer, where: Path) -> None:
    """For text weights that come from a voice folder, with its tokenizer."""
    if _vocabulary_digest(saved) != _vocabulary_digest(now):
        raise _other_vocabulary(where)


def _vocabulary_digest(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(json.dumps(tokenizer.tokens()).encode()).hexdigest()


def _other_vocabulary(where: Path) -> CheckpointError:
    return CheckpointError(
        f"{where} was trained with another vocabulary than this corpus gives: its tokens would mean other letters",
        hint="continue with the corpus that the run began with; to learn from another one, start a run from its voice: "
        "--init-from and another --run-dir",
    )
