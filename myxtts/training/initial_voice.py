"""Starting from a voice that exists (`--init-from`): which settings, tokens and weights a run takes from it.

The voice is read once. What the run starts from, its vocabulary grown for the corpus, is written into the run's own
voice folder, and from then on the run stands on that and on its checkpoints. Imports no TensorFlow: flags are checked
before it is loaded.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.model import ModelConfig
from myxtts.config.parts import voice_parts
from myxtts.config.presets import not_given
from myxtts.config.training import FROM_SCRATCH
from myxtts.data.corpora import list_corpus
from myxtts.data.prepare import PreparingStopped
from myxtts.data.prepared import PreparedCorpus
from myxtts.errors import CheckpointError, ConfigError, DataError
from myxtts.files import make_folder
from myxtts.models.weights import TEXT_WEIGHTS, grow_text_vocabulary, read_arrays, read_manifest, save_arrays
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice import (
    ALIGNER_FILE,
    CONFIG_FILE,
    TOKENIZER_FILE,
    find_voice,
    is_built_in,
    read_voice_config,
    read_voice_tokenizer,
    refuse_exported,
    voice_manifest,
)
from myxtts.text.extending import extend_tokenizer, old_ids
from myxtts.text.tokenizer import Tokenizer
from myxtts.training.alignment import write_grown
from myxtts.training.run_folder import RunFolder
from myxtts.training.stages import needed_with, stage_names
from myxtts.training.stages.spec import StageSpec

logger = logging.getLogger(__name__)

_NOT_SIZES = ("dropout", "text_vocab")
"""Settings of the model that a run from a voice may change, or changes by itself."""


@dataclass(frozen=True)
class InitialVoice:
    """What stands in a voice folder, but for its weights."""

    folder: Path
    model: ModelConfig
    tokenizer: Tokenizer
    parts: tuple[str, ...]
    manifest: VoiceManifest
    normalise_loudness: bool
    """Whether it was trained on clips of one loudness."""

    @property
    def aligned(self) -> bool:
        """Whether heads of its GPT were taught where the speech is in the text."""
        return bool(self.manifest.alignment_heads)


def read_initial(path: str | Path, run_dir: str | Path | None = None) -> InitialVoice:
    """A voice to start from: a run, or a voice folder.

    A run that has begun from it answers for it: the voice itself may be gone by then.
    """
    if run_dir is not None and (begun := _as_begun(path, RunFolder(run_dir))):
        return begun
    folder = find_voice(path)
    refuse_exported(folder)
    manifest = voice_manifest(folder)
    config, tokenizer = read_voice_config(folder), read_voice_tokenizer(folder)
    parts = _in_order(manifest.parts)
    rows = read_manifest(folder).shapes.get("gpt/text_embedding/table", (tokenizer.size,))[0]
    if rows < tokenizer.size:
        raise CheckpointError(
            f"{folder} has {tokenizer.size} text tokens and weights for {rows}",
            hint="use the tokenizer that the weights were trained with",
        )
    return InitialVoice(folder, config.model, tokenizer, parts, manifest, config.data.normalise_loudness)


def _as_begun(path: str | Path, run: RunFolder) -> InitialVoice | None:
    """What the run in this folder took from the voice when it began; None for a run that began otherwise or not yet."""
    if not (has_begun(run) and run.config.is_file()):
        return None
    config, folder = XTTSConfig.from_yaml(run.config), Path(path).resolve()
    if config.training.init_from != _lasting_name(path):
        return None
    manifest = voice_manifest(run.voice)
    tokenizer, parts = read_voice_tokenizer(run.voice), config.training.init_parts
    return InitialVoice(folder, config.model, tokenizer, parts, manifest, config.data.normalise_loudness)


def settings_beneath(
    path: str | Path, run_dir: str | Path | None = None, init_parts: Iterable[str] = ()
) -> dict[str, Any]:
    """The settings of a voice, as defaults beneath YAML and flags."""
    voice = read_initial(path, run_dir)
    return {
        **dataclasses.asdict(voice.model),
        "text_frontend": voice.tokenizer.frontend,
        "normalise_loudness": voice.normalise_loudness,
        **_learning(voice, init_parts or voice.parts),
    }


def _learning(voice: InitialVoice, parts: Iterable[str]) -> dict[str, float]:
    """Alignment loss and augmentation by default: as from scratch, or off where the GPT comes from the voice."""
    if "gpt" not in parts:
        return FROM_SCRATCH
    return {
        name: value if name == "alignment_weight" and voice.aligned else 0.0 for name, value in FROM_SCRATCH.items()
    }


def resolved_config(config: XTTSConfig, *, fresh: bool = False, over_voice: bool = False) -> XTTSConfig:
    """The configuration with all that the voice decides; sizes that were given and differ are an error.

    `fresh` forgets what a run in the same folder began with. `over_voice` says that `settings_beneath` were the
    defaults: a front end that differs from the voice's was then given, be it the one that a voice of our own has.
    """
    training = config.training
    if training.init_from is None:
        return config
    voice = read_initial(training.init_from, None if fresh else training.run_dir)
    if voice.folder.resolve() == RunFolder(training.run_dir).voice.resolve():
        raise ConfigError(
            f"--init-from {training.init_from} is the run's own voice",
            hint="leave --init-from out to continue the run, or choose another --run-dir",
        )
    parts = _in_order(training.init_parts or voice.parts)
    if absent := [part for part in parts if part not in voice.parts]:
        raise ConfigError(
            f"--init-parts names {absent[0]}, and {voice.folder} has {', '.join(voice.parts)}",
            hint="name parts that the voice has, or leave --init-parts out",
        )
    _check_together(parts)
    learning = not_given(training, _learning(voice, parts))
    return dataclasses.replace(
        config,
        data=dataclasses.replace(
            config.data,
            text_frontend=_frontend(config.data, voice, over_voice),
            normalise_loudness=config.data.normalise_loudness or voice.normalise_loudness,
        ),
        model=_sizes(config.model, voice),
        training=dataclasses.replace(
            training, init_from=_lasting_name(training.init_from), init_parts=parts, **learning
        ),
    )


def _lasting_name(path: str | Path) -> str:
    """The voice as the run's settings name it: from wherever the next command is given, it is the same."""
    return str(path) if is_built_in(path) else str(Path(path).resolve())


def _in_order(parts: Iterable[str]) -> tuple[str, ...]:
    named = set(parts)
    return tuple(part for part in voice_parts() if part in named)


def _check_together(parts: Iterable[str]) -> None:
    chosen = tuple(parts)
    for part in chosen:
        if lacking := [need for need in needed_with(part) if need not in chosen]:
            raise ConfigError(
                f"{part} of a voice is of no use without its {lacking[0]}: --init-parts is {' '.join(parts)}",
                hint=f"take {lacking[0]} too, or leave --init-parts out",
            )


def _sizes(given: ModelConfig, voice: InitialVoice) -> ModelConfig:
    """The voice's; `given` may say the same, or nothing."""
    own = dataclasses.replace(voice.model, dropout=given.dropout)
    if _named(given) == _named(ModelConfig()):
        return own
    theirs = _named(own)
    differing = [
        f"{name} is {value} here and {theirs[name]} in the voice"
        for name, value in _named(given).items()
        if value != theirs[name]
    ]
    if differing:
        more = f" ({len(differing)} in all)" if len(differing) > 4 else ""
        raise ConfigError(
            f"sizes differ from those of {voice.folder}: {'; '.join(differing[:4])}{more}",
            hint="leave sizes out with --init-from: they come from the voice",
        )
    return own


def _named(model: ModelConfig) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(model).items() if name not in _NOT_SIZES}


def _frontend(given: DataConfig, voice: InitialVoice, over_voice: bool) -> Any:
    own = voice.tokenizer.frontend
    unsaid = None if over_voice else DataConfig().text_frontend
    if given.text_frontend not in (own, unsaid):
        raise ConfigError(
            f"--text-frontend is {given.text_frontend}, and {voice.folder} reads {own}",
            hint="leave --text-frontend out with --init-from: it comes from the voice",
        )
    return own


def check_parts(spec: StageSpec, parts: Iterable[str], where: str) -> None:
    """Raises a `CheckpointError` where the voice lacks a part that the stage requires."""
    known = set(parts)
    if missing := [part for part in spec.requires if part not in known]:
        raise CheckpointError(
            f"stage {spec.name} needs {', '.join(missing)}, and {where} has {', '.join(sorted(known)) or 'no part'}",
            hint="start from a voice that has them, or train the stages before it in this run",
        )


def first_tokenizer(
    config: XTTSConfig, folder: RunFolder, should_stop: Callable[[], bool] = lambda: False
) -> Tokenizer | None:
    """The tokenizer to prepare the corpus with: the run's own once it has begun, else the voice's, grown.

    None for a run that starts from nothing and makes its own; `PreparingStopped` soon after `should_stop` says so.
    """
    if config.training.init_from is None:
        return None
    if has_begun(folder):
        return read_voice_tokenizer(folder.voice)
    voice = read_initial(config.training.init_from)
    assert config.data.train_data is not None
    listing = list_corpus(
        Path(config.data.train_data), corpus_format=config.data.corpus_format, language=config.data.language
    )
    pairs = [(entry.text, entry.language) for entry in listing.entries]

    def stop_if_asked() -> None:
        if should_stop():
            raise PreparingStopped

    extension = extend_tokenizer(voice.tokenizer, pairs, config.data.extra_tokens, between=stop_if_asked)
    if extension:
        sizes = f"{voice.tokenizer.size} -> {extension.tokenizer.size} tokens"
        logger.info("Vocabulary of the voice, %s; added: %s", sizes, extension.describe())
    return extension.tokenizer


def has_begun(folder: RunFolder) -> bool:
    """Whether the run has a voice of its own; its checkpoints and that are what it continues from."""
    try:
        return find_voice(folder.voice) == folder.voice
    except CheckpointError:
        return False


def text_rows(config: XTTSConfig, tokenizer: Tokenizer) -> int:
    """Rows of the text embedding: one a token; a voice may have more than its vocabulary uses."""
    return max(tokenizer.size, config.model.text_vocab if "gpt" in config.training.init_parts else 0)


def begin(config: XTTSConfig, folder: RunFolder, tokenizer: Tokenizer) -> None:
    """Write what the run starts from as its voice, unless it has begun; old rows of the text weights stay as they are.

    `config` has the sizes that the run has, `tokenizer` is the one that it reads with.
    """
    if has_begun(folder):
        return
    earlier = [stage for stage in stage_names() if folder.checkpoints(stage).is_dir()]
    if earlier:
        raise CheckpointError(
            f"{folder.path} has checkpoints of stage {earlier[0]} and no whole voice folder",
            hint="restore its voice folder from a copy, or start over with --fresh",
        )
    assert config.training.init_from is not None
    voice = read_initial(config.training.init_from)
    parts = config.training.init_parts
    arrays = {name: value for name, value in read_arrays(voice.folder).items() if name.split("/")[0] in parts}
    if "gpt" in parts:
        arrays = grown(arrays, voice.tokenizer, tokenizer, seed=config.training.seed)
    make_folder(folder.voice)
    config.to_yaml(folder.voice / CONFIG_FILE)
    tokenizer.save(folder.voice / TOKENIZER_FILE)
    manifest = dataclasses.replace(
        voice.manifest,
        parts=parts,
        # A part that is left behind is trained anew: the old one's gains are not its own.
        postfilter={part: gains for part, gains in voice.manifest.postfilter.items() if part in parts},
        # How another run trained it.
        trained_to=None,
        trained_on=(),
    )
    if "gpt" in parts and (voice.folder / ALIGNER_FILE).is_file():
        for path in (folder.initial_aligner, folder.voice / ALIGNER_FILE):
            write_grown(path, voice.folder / ALIGNER_FILE, voice.tokenizer, tokenizer)
    save_arrays(folder.voice, arrays, manifest.to_metadata())
    logger.info("Starting from %s: %s", voice.folder, ", ".join(parts))


def grown(arrays: dict[str, NDArray[Any]], old: Tokenizer, new: Tokenizer, *, seed: int = 0) -> dict[str, NDArray[Any]]:
    """The weights for the new vocabulary; the very same where it is the old one."""
    rows = arrays[next(iter(TEXT_WEIGHTS))].shape[0]
    if new.tokens() == old.tokens():
        return arrays
    return grow_text_vocabulary(arrays, old_ids(old.tokens(), new.tokens(), rows), seed=seed)


def clips_that_fit(prepared: PreparedCorpus, clips: NDArray[Any], model: ModelConfig) -> NDArray[Any]:
    """The clips whose text and audio the GPT has positions for; the others are counted in the log."""
    too_long = _too_long(prepared, clips, model)
    fits = ~np.any(list(too_long.values()), axis=0)
    if not fits.all():
        logger.warning(
            "%d of %d clips are left out, longer than the model takes: %s",
            int((~fits).sum()),
            len(clips),
            _counts(too_long),
        )
    kept: NDArray[Any] = clips[fits]
    return kept


def nothing_fits(prepared: PreparedCorpus, model: ModelConfig) -> DataError:
    """Which limits left no clip of a corpus to learn from, those of preparing it included."""
    problem = f"no clip is left to learn from; of {len(prepared.index)} that were prepared, "
    problem += _counts(_too_long(prepared, np.arange(len(prepared.index)), model))
    hint = "cut long clips and texts into shorter ones, or raise these limits of the model"
    if prepared.report["refused"]:
        reasons = [f"{reason} ({count})" for reason, count in prepared.report["refused_by_reason"].items()]
        problem += f"; preparing refused {prepared.report['refused']}: {', '.join(reasons[:3])}"
        hint += "; what preparing refuses is for --max-text-chars and --max-clip-seconds to say"
    return DataError(problem, hint=hint)


def _too_long(prepared: PreparedCorpus, clips: NDArray[Any], model: ModelConfig) -> dict[str, NDArray[Any]]:
    """For each limit of the model, in words, which of the clips are above it."""
    from myxtts.data.alignments import codes_of

    tokens = np.asarray(prepared.index.text_tokens)[clips]
    codes = codes_of(np.asarray(prepared.index.wave_samples)[clips].astype(np.int64))
    audio = f"{model.max_clip_codes} audio codes (--max-audio-tokens {model.max_audio_tokens})"
    return {
        f"{model.max_text_tokens} text tokens (--max-text-tokens)": tokens > model.max_text_tokens,
        audio: codes > model.max_clip_codes,
    }


def _counts(too_long: dict[str, NDArray[Any]]) -> str:
    return " and ".join(f"{above.sum()} have more than {limit}" for limit, above in too_long.items() if above.any())
