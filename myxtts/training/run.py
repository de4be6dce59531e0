"""A whole training run: prepare the data, configure devices, run the stages that are not done, report."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts import __version__
from myxtts.config.config import XTTSConfig
from myxtts.config.training import VOICE_PARTS, Stage
from myxtts.data.prepare import PrepareProgress, PreparingStopped, prepare
from myxtts.errors import MyXTTSError
from myxtts.files import writing
from myxtts.monitoring.console import LiveConsole
from myxtts.monitoring.events import EventLog, ProgressEvents
from myxtts.monitoring.report import write_report
from myxtts.monitoring.tensorboard import TensorBoardWriter
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.backend import import_tensorflow
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.plan_log import configuration_lines, pipeline_lines, placement_lines
from myxtts.synthesis.references import Speaker, save_speakers
from myxtts.synthesis.voice import DETAIL, LEARNT_FROM, load_parts, read_voice_tokenizer, save_voice, voice_facts
from myxtts.training import initial_voice
from myxtts.training.recipes import parts_after, stages_for
from myxtts.training.run_folder import (
    RunFolder,
    apart,
    from_anywhere,
    make_room,
    refuse_other_configuration,
    refuse_other_vocabulary,
)
from myxtts.training.stage_order import (
    TRAINED_TO,
    Trained,
    published,
    refuse_without_checkpoints,
    refuse_without_ground,
    stages_before,
)

if TYPE_CHECKING:
    from myxtts.models.gpt import AlignmentHeads

logger = logging.getLogger(__name__)


def run_training(config: XTTSConfig, plan: DevicePlan, *, fresh: bool, live_console: bool) -> int:
    """Train as configured; 0 when done or when asked to stop, with everything saved. Errors are `MyXTTSError`."""
    config = initial_voice.settled(config, fresh=fresh)
    folder = RunFolder(config.training.run_dir, config.training.checkpoint_dir)
    with folder.lock():
        _refuse_what_cannot_go_on(config, folder, fresh)
        import_tensorflow()  # before anything else does, so that it is quiet, and names the extra where it is missing
        if fresh and (aside := folder.start_afresh()):
            logger.info("Earlier run moved to %s", aside)
        with (
            EventLog(folder.events) as events,
            LiveConsole(plain=not live_console, warnings_logged=True) as console,
            TensorBoardWriter(folder.tensorboard) as tensorboard,
            _stop_signals() as stop,
        ):
            console.follow(events)
            events.subscribe(tensorboard.on_event)
            arguments = (config, plan, folder, events, stop, tensorboard)
            if not _to_its_end(lambda: TrainingRun(*arguments).run(), events, folder):
                again = " without --fresh" if fresh else ""
                logger.info("Stopped and saved. To continue, run the same command again%s.", again)
    return 0


def _to_its_end(run: Callable[[], bool], events: EventLog, folder: RunFolder) -> bool:
    """Whether it finished. However it ends, the log and the report say so."""
    reason, message = "failed", str(folder.path)
    try:
        try:
            finished = run()
        except PreparingStopped:
            finished = False
        reason = "finished" if finished else "interrupted"
        return finished
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except BaseException as error:
        message = error.problem if isinstance(error, MyXTTSError) else f"{type(error).__name__}: {error}"
        raise
    finally:
        events.write("run_end", reason=reason, message=message)
        _report(folder)


def _report(folder: RunFolder) -> None:
    """A warning where it cannot be made: it must not hide what the run ended with."""
    try:
        logger.info("Report: %s", write_report(folder.path))
    except Exception as error:  # noqa: BLE001 - whatever it is, what the run ended with is said
        logger.warning("report.html cannot be written to %s: %s: %s", folder.path, type(error).__name__, error)


def _refuse_what_cannot_go_on(config: XTTSConfig, folder: RunFolder, fresh: bool) -> None:
    """Other settings than the run began with, its checkpoints elsewhere, or a stage without what it stands on."""
    if folder.has_saved() and not fresh:
        refuse_other_configuration(_without_vocabulary(folder.saved_settings()), config, folder.path)
        refuse_without_checkpoints(folder)
    if not config.training.init_parts:
        refuse_without_ground(stages_for(config)[0], folder, fresh=fresh)


class TrainingRun:
    """The stages of one run over one trainer."""

    def __init__(
        self,
        config: XTTSConfig,
        plan: DevicePlan,
        folder: RunFolder,
        events: EventLog,
        should_stop: Callable[[], bool],
        board: TensorBoardWriter | None = None,
    ) -> None:
        self._plan, self._folder, self._events = plan, folder, events
        self._should_stop = should_stop
        self._board = board
        self._progress = ProgressEvents(events)
        self._known_speakers: list[Speaker] | None = None
        program = Path(sys.argv[0]).name
        command = shlex.join(["myxtts" if program == "__main__.py" else program, *sys.argv[1:]])
        self._events.write(
            "run_start", version=__version__, command=command, mode=plan.mode, stages=list(stages_for(config))
        )
        # Before the corpus is prepared, which may take hours: what is wrong with the devices is said at once.
        apply_plan(plan)
        self._brought = config.training.init_parts
        if self._brought:
            own = voice_facts(folder.voice).get("parts", self._brought)
            initial_voice.check_parts(stages_for(config)[0], own, str(config.training.init_from))
        config = dataclasses.replace(config, data=apart(config.data))
        self._train, self._held_out = self._corpora(config)
        self.tokenizer = self._train.prepared.tokenizer
        model = dataclasses.replace(config.model, text_vocab=initial_voice.text_rows(config, self.tokenizer))
        self.config = dataclasses.replace(config, model=model, data=from_anywhere(config.data))
        with writing(folder.config, hint=make_room()):
            self.config.to_yaml(folder.config)
        if self._brought:
            speakers = self._speakers()
            with writing(folder.voice, hint=make_room()):
                save_speakers(folder.voice, speakers)
                initial_voice.begin(self.config, folder, self.tokenizer)

    def _corpora(self, config: XTTSConfig) -> tuple[Any, Any]:
        from myxtts.training.stage_run import Corpus

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

    def run(self) -> bool:
        """Every stage that was asked for, in order; `False` when asked to stop on the way."""
        trainer = self._build_trainer()
        from myxtts.training.stage_run import StageRun

        samples = self._samples(trainer)
        done: list[Stage] = []
        for stage in stages_for(self.config):
            self._load_what_it_needs(trainer, stage, done)
            run = StageRun(
                trainer,
                stage,
                self._train,
                self._held_out,
                self._folder,
                self._events,
                self._should_stop,
                lambda saved: self._on_checkpoint(trainer, saved),
                samples,
            )
            logger.info("Stage %s: %d steps, ended by %s", stage, run.length.steps, run.length.ended_by)
            if not run.run():
                return False
            voice = published(voice_facts(self._folder.voice), brought=self._brought)
            if voice < Trained.to(stage, trainer.step_number):
                self._publish(trainer, stage)  # A kill came between its last checkpoint and the voice.
            done.append(stage)
        return True

    def _build_trainer(self) -> Any:
        self._events.write(
            "devices",
            mode=self._plan.mode,
            lines=configuration_lines(self._plan),
            simulated=self._plan.simulated,
            data=dataclasses.asdict(self._plan.data) if self._plan.data is not None else None,
            models=[dataclasses.asdict(role) for role in self._plan.models],
        )
        for line in pipeline_lines(self._plan, self.config.data.buffer_size):
            logger.info(line)
        self._events.write(
            "pipeline",
            data_device=self._plan.producer_device,
            model_devices=[role.name for role in self._plan.models],
            buffer_size=self.config.data.buffer_size,
        )
        for line in placement_lines(self._plan):
            logger.info(line)
        trainer = self._trainer()
        self._events.write("model_placed", device=trainer.model_device, physical=self._plan.model.physical)
        return trainer

    def _trainer(self) -> Any:
        from myxtts.runtime.seeds import seed_everything
        from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
        from myxtts.training.trainer import XTTSTrainer

        seed_everything(self.config.training.seed)
        training, data = self.config.training, self.config.data
        if training.enable_memory_isolation and data.data_gpu is not None and isinstance(data.model_gpu, int):
            return MemoryIsolatedDualGPUTrainer(
                self.config, data.data_gpu, data.model_gpu, training.data_gpu_memory, training.model_gpu_memory
            )
        return XTTSTrainer(self.config)

    def _load_what_it_needs(self, trainer: Any, stage: Stage, done: list[Stage]) -> None:
        """A stage stands on the weights of the stages before it: of this run just now, or of its voice folder."""
        if self._brought:
            if not done:
                trainer.pretrained_parts = frozenset(self._brought)
                load_parts(self._folder.voice, trainer.model)
            if stage == "codec" and "gpt" in self._brought:
                logger.warning("Stage codec changes the codes that the voice's GPT speaks: train gpt after it")
            return
        if not set(stages_before(stage)) <= set(done):
            voice = self._folder.voice
            if "gpt" in voice_facts(voice).get("parts", ()):
                refuse_other_vocabulary(read_voice_tokenizer(voice), self.tokenizer, voice)
            load_parts(voice, trainer.model)

    def _on_checkpoint(self, trainer: Any, stage: Stage) -> None:
        if trainer.current_stage().fit_to_speak(trainer.step_number):
            self._publish(trainer, stage)
        else:
            logger.info(
                "The voice speaks without stage %s until that has learnt longer; samples/ has it already", stage
            )

    def _publish(self, trainer: Any, stage: Stage) -> None:
        speakers = self._speakers()
        parts = self._parts_after(stage)
        facts = self._facts(trainer) | {TRAINED_TO: [stage, trainer.step_number]}
        with trainer.optimizer.averages_in_place(), writing(self._folder.voice, hint=make_room()):
            save_speakers(self._folder.voice, speakers)
            save_voice(self._folder.voice, trainer.model, parts, self.config, self.tokenizer, facts)

    def _facts(self, trainer: Any) -> dict[str, Any]:
        """What the voice's manifest says of the training so far."""
        from myxtts.training.publishing import facts_of, with_what_it_brought

        before = voice_facts(self._folder.voice)
        facts = facts_of(
            self._train.prepared,
            self._train.clips,
            self.config,
            self._alignment_heads(trainer),
            learnt_from=before.get(LEARNT_FROM, ()),
        )
        # What was measured of a part that another stage trained stays true.
        facts[DETAIL] = {**before.get(DETAIL, {}), **trainer.current_stage().detail}
        return with_what_it_brought(facts, before, self._brought) if self._brought else facts

    def _parts_after(self, stage: Stage) -> list[str]:
        """What the voice has once the stage is done: what it brought, what this run trained before, and this."""
        before = voice_facts(self._folder.voice).get("parts", ()) if self._brought else ()
        after = parts_after(stage, self.config.model)
        return [part for part in VOICE_PARTS if part in after or part in before]

    def _speakers(self) -> list[Speaker]:
        from myxtts.training.publishing import speakers_of

        if self._known_speakers is None:
            self._known_speakers = speakers_of(self._train.prepared, self._train.clips)
        return self._known_speakers

    def _samples(self, trainer: Any) -> Callable[[Stage, int], None] | None:
        """What is called after each validation; None where no samples are wanted or no clip is held out."""
        from myxtts.training.samples import SampleMaker

        chosen = self._held_out.clips[: self.config.training.samples]
        if len(chosen) == 0:
            return None
        clips = [self._held_out.prepared.read(int(clip)) for clip in chosen]
        maker = SampleMaker(
            trainer, clips, self._speakers(), self.tokenizer, self._folder.samples, self._events, self._board
        )
        return lambda stage, step: maker.make(stage, step, self._parts_after(stage), self._facts(trainer))

    def _alignment_heads(self, trainer: Any) -> AlignmentHeads:
        """Heads that were taught where the speech is in the text; read when speaking, for timings and guards."""
        from myxtts.training.steps.gpt import GPTStage

        stage = trainer.current_stage()
        if isinstance(stage, GPTStage):
            return stage.alignment_heads
        # Other stages leave the GPT as it is, and with it what its voice says of the heads.
        heads: AlignmentHeads = voice_facts(self._folder.voice).get("alignment_heads", ())
        return heads


def _without_vocabulary(saved: dict[str, Any]) -> dict[str, Any]:
    """The run's own file has the tokenizer's size in the place of the preset's."""
    return {**saved, "model": {k: v for k, v in saved.get("model", {}).items() if k != "text_vocab"}}


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGTERM, a closed terminal (SIGHUP) and the first Ctrl-C ask to stop after the step at hand; a second Ctrl-C
    interrupts at once. Under nohup a closed terminal is none of ours.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)
        logger.info("Stopping after this step or clip (again Ctrl-C to stop at once)")

    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
