"""A whole training run: prepare the data, configure devices, run the stages that are not done, report."""

from __future__ import annotations

import dataclasses
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts import __version__
from myxtts.config.config import XTTSConfig
from myxtts.config.parts import voice_parts
from myxtts.config.training import Stage
from myxtts.data.prepare import PrepareProgress, PreparingStopped, prepare
from myxtts.files import writing
from myxtts.monitoring.console import LiveConsole
from myxtts.monitoring.events import EventLog, ProgressEvents
from myxtts.monitoring.tensorboard import TensorBoardWriter
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.backend import import_tensorflow
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.plan_log import configuration_lines, pipeline_lines, placement_lines
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import Speaker, save_speakers
from myxtts.synthesis.voice import (
    ALIGNER_FILE,
    check_sizes,
    load_parts,
    missing_to_speak,
    read_voice_tokenizer,
    save_voice,
    voice_manifest,
)
from myxtts.training import initial_voice
from myxtts.training.memory_estimate import refuse_weights_beyond_memory
from myxtts.training.recipes import stages_to_run
from myxtts.training.run_ends import command_line, run_and_record_end, stop_signals
from myxtts.training.run_folder import (
    RunFolder,
    disk_full_hint,
    refuse_other_configuration,
    refuse_other_vocabulary,
    with_absolute_paths,
    without_same_validation_folder,
)
from myxtts.training.stage_order import (
    Trained,
    published,
    refuse_without_checkpoints,
    refuse_without_earlier_stages,
)
from myxtts.training.stages import parts_after, stages_before, stages_of
from myxtts.training.stages.spec import StageSpec
from myxtts.training.team import Team

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer
    from myxtts.training.data_worker import DataWorkers
    from myxtts.training.stage_data import Corpus, StageData
    from myxtts.training.trainer import XTTSTrainer

logger = logging.getLogger(__name__)


def run_training(config: XTTSConfig, plan: DevicePlan, *, fresh: bool, live_console: bool, worker: int = 0) -> int:
    """Train as configured; 0 when done or when asked to stop, with everything saved. Errors are `MyXTTSError`.

    `config` is resolved: of a run from a voice by `initial_voice.resolved_config`. Of several model workers, this is
    number `worker`.
    """
    refuse_weights_beyond_memory(config, plan)
    team = Team(worker, plan.model_workers)
    if not team.is_chief:
        with stop_signals() as stop:
            run_here(config, plan, stop, team=team)
        return 0
    with held_folder(config, fresh) as folder:
        logger.info("Loading TensorFlow")
        import_tensorflow()  # names the extra where it is missing, before an earlier run is moved aside
        begin(folder, fresh)
        with (
            LiveConsole(plain=not live_console, warnings_logged=True) as console,
            stop_signals() as stop,
        ):
            finished = run_here(config, plan, stop, on_events=console.follow, team=team)
        tell_what_follows(folder, finished=finished, fresh=fresh)
    return 0


@contextmanager
def held_folder(config: XTTSConfig, fresh: bool) -> Iterator[RunFolder]:
    """The folder of a run that can begin or go on in it, held against other runs."""
    folder = RunFolder(config.training.run_dir, config.training.checkpoint_dir)
    with folder.lock():
        refuse_what_cannot_go_on(config, folder, fresh)
        yield folder


def begin(folder: RunFolder, fresh: bool) -> None:
    """Move an earlier run aside where that was asked for."""
    if fresh and (aside := folder.start_afresh()):
        logger.info("Earlier run moved to %s", aside)


def tell_what_follows(folder: RunFolder, *, finished: bool, fresh: bool) -> None:
    """The command that comes next: the same one, or the first one that speaks."""
    if not finished:
        again = " without --fresh" if fresh else ""
        logger.info("Stopped and saved. To continue, run the same command again%s.", again)
        return
    manifest = voice_manifest(folder.voice)
    if not missing_to_speak(manifest.parts):
        spoken = manifest.languages or ("en",)
        language = "" if "en" in spoken else f" --language {spoken[0]}"
        logger.info('To hear it: myxtts synth "TEXT" --voice %s%s --out hello.wav', folder.path, language)


def run_here(
    config: XTTSConfig,
    plan: DevicePlan,
    stop: Callable[[], bool],
    *,
    on_events: Callable[[EventLog], None] = lambda events: None,
    team: Team | None = None,
    data_workers: DataWorkers | None = None,
    command: str | None = None,
) -> bool:
    """All stages, in a folder that is held; `False` if asked to stop. Of a team only the chief writes."""
    folder = RunFolder(config.training.run_dir, config.training.checkpoint_dir)
    writes = team is None or team.is_chief
    import_tensorflow()  # before anything else does, so that it is quiet
    with ExitStack() as open_files:
        events = open_files.enter_context(EventLog(folder.events if writes else Path(os.devnull)))
        board = open_files.enter_context(TensorBoardWriter(folder.tensorboard)) if writes else None
        on_events(events)
        if board is not None:
            events.subscribe(board.on_event)
        run = TrainingRun(
            config, plan, folder, events, stop, board, team=team, data_workers=data_workers, command=command
        )
        return run_and_record_end(run.whole, events, folder) if writes else run.whole()


def refuse_what_cannot_go_on(config: XTTSConfig, folder: RunFolder, fresh: bool) -> None:
    """Other settings than the run began with, its checkpoints elsewhere, or a stage without what it stands on."""
    if folder.has_saved() and not fresh:
        refuse_other_configuration(_without_vocabulary(folder.saved_settings()), config, folder.path)
        refuse_without_checkpoints(folder)
    if not config.training.init_parts:
        refuse_without_earlier_stages(stages_to_run(config)[0], config.model, folder, fresh=fresh)


class TrainingRun:
    """The stages of one run over one trainer: `prepare`, then `run`."""

    config: XTTSConfig
    """As the run goes by: the tokenizer's size in the place of the preset's, whole paths. Known once prepared."""
    tokenizer: Tokenizer

    def __init__(
        self,
        config: XTTSConfig,
        plan: DevicePlan,
        folder: RunFolder,
        events: EventLog,
        should_stop: Callable[[], bool],
        board: TensorBoardWriter | None = None,
        *,
        team: Team | None = None,
        data_workers: DataWorkers | None = None,
        command: str | None = None,
    ) -> None:
        self.config, self._plan, self._folder, self._events = config, plan, folder, events
        self._should_stop, self._board = should_stop, board
        self._team, self._data_workers = team or Team(), data_workers
        self._command = command or command_line()
        self._progress = ProgressEvents(events)
        self._inherited = config.training.init_parts
        self._known_speakers: list[Speaker] | None = None

    def prepare(self) -> None:
        """Configure the devices, prepare the corpora, which may take hours, and write the settings of the run."""
        specs = stages_to_run(self.config)
        names = [spec.name for spec in specs]
        self._events.write("run_start", version=__version__, command=self._command, mode=self._plan.mode, stages=names)
        # Before the corpus is prepared: what is wrong with the devices is said at once.
        apply_plan(self._plan)
        if self._inherited:
            own = voice_manifest(self._folder.voice).parts or self._inherited
            initial_voice.check_parts(specs[0], own, str(self.config.training.init_from))
        config = dataclasses.replace(self.config, data=without_same_validation_folder(self.config.data))
        self._train, self._held_out = self._team.in_turn(lambda: self._corpora(config))
        self._team.refuse_different("the corpus", zlib.crc32(self._train.prepared.identity.encode()))
        self.tokenizer = self._train.prepared.tokenizer
        model = dataclasses.replace(config.model, text_vocab=initial_voice.text_rows(config, self.tokenizer))
        self.config = dataclasses.replace(config, model=model, data=with_absolute_paths(config.data))
        self._team.in_turn(self._write_settings)
        if self._inherited:
            check_sizes(self._folder.voice, self.config.model)

    def _write_settings(self) -> None:
        """And the voice that a fine-tuning begins as."""
        if not self._team.is_chief:
            return
        with writing(self._folder.config, hint=disk_full_hint()):
            self.config.to_yaml(self._folder.config)
        if self._inherited:
            speakers = self._speakers()
            with writing(self._folder.voice, hint=disk_full_hint()):
                save_speakers(self._folder.voice, speakers)
                initial_voice.begin(self.config, self._folder, self.tokenizer)

    def _corpora(self, config: XTTSConfig) -> tuple[Corpus, Corpus]:
        """Training clips and held-out clips: one of every 20, or those of --val-data."""
        from myxtts.training.stage_data import Corpus

        assert config.data.train_data is not None
        given = initial_voice.first_tokenizer(config, self._folder, self._should_stop)
        train = prepare(config.data.train_data, config.data, self._preparing, given, should_stop=self._should_stop)
        held_out = train
        learnt, kept = train.split()
        if config.data.val_data is not None:
            held_out = prepare(
                config.data.val_data, config.data, self._preparing, train.tokenizer, should_stop=self._should_stop
            )
            learnt, kept = np.arange(len(train)), np.arange(len(held_out))
        chosen = [
            initial_voice.clips_that_fit(prepared, clips, config.model)
            for prepared, clips in ((train, learnt), (held_out, kept))
        ]
        return Corpus(train, chosen[0]), Corpus(held_out, chosen[1])

    def _preparing(self, progress: PrepareProgress) -> None:
        self._progress("preparing clips", progress.done, progress.total)
        if progress.done == progress.total:
            logger.info("Prepared %d clips, %d refused", progress.total, progress.refused)

    def whole(self) -> bool:
        """`prepare` and `run`; `False` when asked to stop in either."""
        try:
            self.prepare()
        except PreparingStopped:
            return False
        return self.run()

    def run(self) -> bool:
        """Every stage that was asked for, in order; `False` when asked to stop on the way."""
        from myxtts.training.loop import StageLoop, run_stage
        from myxtts.training.stage_data import StageData

        trainer = self._build_trainer()
        samples = self._samples(trainer)
        done: list[Stage] = []
        for spec in stages_to_run(self.config):
            self._load_required_parts(trainer, spec, done)
            data = StageData(
                self.config,
                spec,
                self._train,
                self._held_out,
                self._should_stop,
                progress=self._progress,
                initial_aligner=self._initial_aligner(),
            )
            loop = StageLoop(
                trainer,
                data,
                self._folder,
                self._events,
                lambda saved: self._on_checkpoint(trainer, saved),
                samples,
                team=self._team,
                data_workers=self._data_workers,
            )
            if not run_stage(loop):
                return False
            self._team.in_turn(partial(self._keep, trainer, data, loop.total_steps))
            done.append(spec.name)
        return True

    def _keep(self, trainer: XTTSTrainer, data: StageData, steps: int) -> None:
        """After a stage: the voice, where a kill came between the last checkpoint and it, and the aligner."""
        if not self._team.is_chief:
            return
        voice = published(voice_manifest(self._folder.voice), inherited=self._inherited)
        if voice < Trained.to(data.spec.name, trainer.step_number):
            self._publish(trainer, data.spec)
        data.keep_aligner(self._folder.voice / ALIGNER_FILE, steps=steps)

    def _initial_aligner(self) -> Path | None:
        path = self._folder.initial_aligner
        return path if "gpt" in self._inherited and path.is_file() else None

    def _build_trainer(self) -> XTTSTrainer:
        self._events.write(
            "devices",
            mode=self._plan.mode,
            lines=configuration_lines(self._plan),
            simulated=self._plan.simulated,
            data=[dataclasses.asdict(role) for role in self._plan.producers],
            models=[dataclasses.asdict(role) for role in self._plan.models],
        )
        for line in (*pipeline_lines(self._plan, self.config.data.buffer_size), *placement_lines(self._plan)):
            logger.info(line)
        self._events.write(
            "pipeline",
            data_devices=list(self._plan.producer_devices),
            model_devices=[role.name for role in self._plan.models],
            buffer_size=self.config.data.buffer_size,
        )
        trainer = self._trainer()
        self._events.write("model_placed", device=trainer.model_device, physical=self._plan.model.physical)
        return trainer

    def _trainer(self) -> XTTSTrainer:
        from myxtts.runtime.seeds import seed_everything
        from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
        from myxtts.training.trainer import XTTSTrainer

        seed_everything(self.config.training.seed)
        training, data = self.config.training, self.config.data
        if training.enable_memory_isolation and isinstance(data.data_gpu, int) and isinstance(data.model_gpu, int):
            limits = training.data_gpu_memory, training.model_gpu_memory
            return MemoryIsolatedDualGPUTrainer(self.config, data.data_gpu, data.model_gpu, *limits, plan=self._plan)
        return XTTSTrainer(self.config, plan=self._plan)

    def _load_required_parts(self, trainer: XTTSTrainer, spec: StageSpec, done: list[Stage]) -> None:
        """The weights of the stages before: of this run just now, or of its voice folder."""
        if self._inherited:
            if not done:
                trainer.pretrained_parts = frozenset(self._inherited)
                load_parts(self._folder.voice, trainer.model)
            for later in stages_of(self.config.model):
                in_vain = later.purpose in self._inherited and later not in stages_to_run(self.config)
                if spec.purpose in later.requires and in_vain:
                    logger.warning(
                        "Stage %s changes what the voice's %s was trained with: train stage %s after it",
                        spec.name,
                        later.purpose,
                        later.name,
                    )
            return
        if not {earlier.name for earlier in stages_before(spec, self.config.model)} <= set(done):
            voice = self._folder.voice
            if "gpt" in voice_manifest(voice).parts:
                refuse_other_vocabulary(read_voice_tokenizer(voice), self.tokenizer, voice)
            load_parts(voice, trainer.model)

    # The voice

    def _on_checkpoint(self, trainer: XTTSTrainer, spec: StageSpec) -> None:
        if trainer.current_stage().ready_to_speak(trainer.step_number):
            self._publish(trainer, spec)
        else:
            logger.info(
                "The voice speaks without stage %s until that has learnt longer; samples/ has it already", spec.name
            )

    def _publish(self, trainer: XTTSTrainer, spec: StageSpec) -> None:
        assert trainer.optimizer is not None
        speakers = self._speakers()
        manifest = dataclasses.replace(self._manifest(trainer, spec), trained_to=(spec.name, trainer.step_number))
        with trainer.optimizer.averages_in_place(), writing(self._folder.voice, hint=disk_full_hint()):
            save_speakers(self._folder.voice, speakers)
            save_voice(self._folder.voice, trainer.model, manifest, self.config, self.tokenizer)

    def _manifest(self, trainer: XTTSTrainer, spec: StageSpec) -> VoiceManifest:
        """What the voice's manifest says of the training so far."""
        from myxtts.training.publishing import manifest_of, with_inherited

        before, stage = voice_manifest(self._folder.voice), trainer.current_stage()
        # A stage that leaves the GPT as it is leaves what is known of its heads.
        heads = before.alignment_heads if stage.alignment_heads is None else stage.alignment_heads
        manifest = manifest_of(
            self._train.prepared, self._train.clips, self.config, heads, trained_on=before.trained_on
        )
        # What was measured of a part that another stage trained stays true.
        postfilter = {**before.postfilter, **stage.postfilter}
        manifest = dataclasses.replace(manifest, parts=self._parts_after(spec), postfilter=postfilter)
        return with_inherited(manifest, before, self._inherited) if self._inherited else manifest

    def _parts_after(self, spec: StageSpec) -> tuple[str, ...]:
        """What the voice has once the stage is done: inherited parts, those this run trained before, and its own."""
        known = voice_manifest(self._folder.voice).parts if self._inherited else ()
        known += parts_after(spec, self.config.model)
        return tuple(part for part in voice_parts() if part in known)

    def _speakers(self) -> list[Speaker]:
        from myxtts.training.publishing import speakers_of

        if self._known_speakers is None:
            self._known_speakers = speakers_of(self._train.prepared, self._train.clips)
        return self._known_speakers

    def _samples(self, trainer: XTTSTrainer) -> Callable[[StageSpec, int], None] | None:
        """What is called after each validation; None where no samples are wanted or no clip is held out."""
        from myxtts.training.samples import SampleMaker

        chosen = self._held_out.clips[: self.config.training.samples]
        if len(chosen) == 0:
            return None
        clips = [self._held_out.prepared.read(int(clip)) for clip in chosen]
        maker = SampleMaker(
            trainer, clips, self._speakers(), self.tokenizer, self._folder.samples, self._events, self._board
        )
        return lambda spec, step: maker.make(spec.name, step, self._manifest(trainer, spec))


def _without_vocabulary(saved: dict[str, Any]) -> dict[str, Any]:
    """The run's own file has the tokenizer's size in the place of the preset's."""
    return {**saved, "model": {k: v for k, v in saved.get("model", {}).items() if k != "text_vocab"}}
