"""The trainer: one stage's step under the plan's strategy, on the plan's devices, and its state in and out.

`XTTSTrainer` learns from batches that are already on the model's device(s); `myxtts.training.loop` brings them, saves,
validates and reports. One step is `grad_accum` batches: gradients are summed over replicas, averaged over the
batches, clipped by each group's global norm and applied; a step whose gradient is not finite changes nothing and is
counted.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.errors import CheckpointError, TrainingError
from myxtts.models.aligner import CTCNetwork
from myxtts.models.xtts import XTTS
from myxtts.pipeline import DeviceBatch, Producer, split_rows
from myxtts.runtime.apply import plan_of_process
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.plan_log import creation_line
from myxtts.runtime.precision import choose_precision, set_arithmetic
from myxtts.runtime.strategy import get_device_context, make_strategy, specs_of_any_length
from myxtts.training.checkpoint import Checkpoint, load_checkpoint, refuse_other_model
from myxtts.training.optim import AdamW, LossScale, clipped_means, shares_of_counts, sums_with_loss
from myxtts.training.out_of_memory import batch_in_words, out_of_memory, ran_out_of_memory
from myxtts.training.recipes import recipe_for, with_steps
from myxtts.training.run_folder import refuse_other_configuration
from myxtts.training.stage_order import load_required_parts
from myxtts.training.stages import stage_named
from myxtts.training.stages.spec import StageRecipe
from myxtts.training.stages.stage import StageContext, Tensors, TrainingStage, copy_weights

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10


@dataclass(frozen=True)
class StepResult:
    """One step as numbers."""

    step: int
    loss: float
    figures: dict[str, float]
    gradient_norm: float
    skipped: bool = False


class XTTSTrainer:
    """Trains one stage at a time. Model and optimiser are built under the strategy's scope, on the model's device."""

    def __init__(
        self,
        config: XTTSConfig,
        model: XTTS | None = None,
        resume_checkpoint: str | None = None,
        model_device: str | None = None,
        *,
        plan: DevicePlan | None = None,
    ) -> None:
        """`plan` is the one that was applied to this process; without it the configuration's own is applied now."""
        self.config = config
        self.plan = plan if plan is not None else plan_of_process(config)
        set_arithmetic(tf32=config.training.tf32, deterministic=config.training.deterministic)
        keras.config.set_dtype_policy(choose_precision(config.training.mixed_precision, self.plan))
        self.model_device = model_device or self.plan.model.name
        self.strategy = tf.distribute.OneDeviceStrategy(model_device) if model_device else make_strategy(self.plan)
        untrained = model is None
        if model is None:
            logger.info(creation_line(self.plan, model_device))
            with self.strategy.scope(), self._model_scope():
                model = XTTS(config.model)
        self.model = model
        self.step_number = 0
        self.skipped_steps = 0
        self._skipped_in_a_row = 0
        self.pretrained_parts: frozenset[str] = frozenset()
        """Parts whose weights came with a published voice; set it before a stage that should leave them as they are."""
        self.stage: TrainingStage | None = None
        self.producers: tuple[Producer, ...] = ()
        """The stage's data work, on each data device."""
        self.recipe: StageRecipe | None = None
        self.optimizer: AdamW | None = None
        if resume_checkpoint is not None:
            self._resume(Path(resume_checkpoint), untrained=untrained)

    def on_every_model_device(self, network: CTCNetwork) -> CTCNetwork:
        """A copy with the same weights where the model is: with each replica of it."""
        with self.strategy.scope(), self._model_scope():
            return copy_weights(network, CTCNetwork(network.labels))

    def _model_scope(self) -> Any:
        """For what is computed once for all replicas: no business of the data's GPU, which is TensorFlow's default."""
        return get_device_context(self.model_device)

    def start_stage(self, stage: Stage, recipe: StageRecipe | None = None) -> None:
        """Build the stage, its optimiser and its compiled functions; step numbers start at 0."""
        spec = stage_named(stage, self.config.model)
        self.recipe = recipe if recipe is not None else recipe_for(self.config, spec)
        self.stage, *others = [
            spec.build(
                StageContext(
                    config=self.config,
                    model=self.model,
                    plan=self.plan,
                    data_device=device,
                    steps=self.recipe.steps,
                    pretrained=self.pretrained_parts,
                )
            )
            for device in self.plan.producer_devices
        ]
        # Of the others only their half on a further data device is used.
        self.producers = tuple(
            Producer(stage.process, device)
            for stage, device in zip((self.stage, *others), self.plan.producer_devices, strict=True)
        )
        with self.strategy.scope(), self._model_scope():
            self.stage.build()
            variables, shares = self.stage.trainable_variables, self.stage.rate_shares
            self.optimizer = AdamW(self.recipe, variables, self.strategy, rate_shares=shares)
        self.step_number = self.skipped_steps = self._skipped_in_a_row = 0
        self.loss_scale = LossScale(keras.config.dtype_policy().compute_dtype)
        # No function here has Python control flow over tensors, and autograph's rewriting costs ten times the tracing.
        options = {"autograph": False, "reduce_retracing": not self.config.training.jit_compile}
        self._run_sum = tf.function(self._distributed_sum, **options)
        self._run_norms = tf.function(self._distributed_norms, **options)
        self._run_update = tf.function(self._distributed_update, **options)
        self._run_after_update = tf.function(self._distributed_after_update, **options)
        self._run_evaluation: Any = None  # from the first batch that is evaluated
        self._compile_gradients()

    def _compile_gradients(self) -> None:
        """What a stage's new objective changes; the update and the validation stay as they were traced."""
        self._gradients_of: dict[tuple[str, ...], Any] = {}  # by what a batch holds, from the first such batch on
        # XLA compiles what has no collective in it: the gradient of one replica.
        self._replica_gradients: Any = self._value_and_gradients
        if self.config.training.jit_compile:
            self._replica_gradients = tf.function(self._value_and_gradients, jit_compile=True, autograph=False)

    def _run_gradients(self, batch: Any, *others: tf.Tensor) -> Any:
        names = tuple(sorted(batch))
        if names not in self._gradients_of:
            self._gradients_of[names] = self._compiled(self._distributed_gradients, batch, *others)
        return self._gradients_of[names](batch, *others)

    def _compiled(self, function: Any, batch: Any, *others: tf.Tensor) -> Any:
        """One trace for all batches: `reduce_retracing` would free one length a trace. XLA wants a trace a shape."""
        signature = [specs_of_any_length(batch), *map(tf.TensorSpec.from_tensor, others)]
        jit = self.config.training.jit_compile
        return tf.function(function, input_signature=None if jit else signature, autograph=False)

    # One step

    def train_step(
        self, text_sequences: Any, mel_spectrograms: Any, text_lengths: Any, mel_lengths: Any
    ) -> dict[str, float]:
        """One step from mels, as documented: transfer to the model's device, forward, backward, update."""
        self.refuse_accumulation("train_step")
        stage = self.current_stage()
        with self._model_scope():
            inputs = [tf.identity(x) for x in (text_sequences, mel_spectrograms, text_lengths, mel_lengths)]
            batch = stage.from_mels(*inputs)
        result = self.learn([self._whole_batch(batch)])
        return {"loss": result.loss, **result.figures}

    def refuse_accumulation(self, method: str) -> None:
        """For a method that makes a step of one batch."""
        if (wanted := self.config.training.grad_accum) > 1:
            raise TrainingError(
                f"grad_accum is {wanted}, and {method} makes a step of one batch",
                hint=f"give `learn` the {wanted} batches of a step together, or leave grad_accum at 1",
            )

    def learn(self, batches: Sequence[DeviceBatch]) -> StepResult:
        """One optimiser step from `grad_accum` batches that are on the model's device(s)."""
        stage, optimizer, count = self.current_stage(), self.optimizer, len(batches)
        assert optimizer is not None
        if stage.begin_step(self.step_number):
            self._compile_gradients()
        # Made on the host and copied inside of functions: an eager copy to a GPU waits for what that has still to do.
        # NumPy's numbers: of Python's TensorFlow keeps every tensor that it made of one, 0.7 kB, for good.
        with tf.device("/CPU:0"):
            step = tf.constant(np.int64(self.step_number))
            loss_scale = tf.constant(np.float32(self.loss_scale.factor))
            scale = tf.constant(np.float32(1.0 / (count * self.loss_scale.factor)))
            seeds = [[self.config.training.seed, self.step_number * count + number] for number in range(count)]
            seeds_P2 = [tf.constant(seed, tf.int32) for seed in seeds]
            factors = optimizer.factors(self.step_number - self.skipped_steps)
        total, passes = None, []
        try:
            with self._model_scope():
                for batch, seed in zip(batches, seeds_P2, strict=True):
                    tensors = self._per_replica(batch)
                    passed = self._run_gradients(tensors, seed, step, loss_scale)
                    total = passed["gradients"] if total is None else self._run_sum(total, passed["gradients"])
                    passes.append((tensors, passed))
                shown = [[passed["loss"], *passed["figures"].values()] for _, passed in passes]
                norms, row = self._run_norms(total, scale, shown)
                # The one time in a step that the host waits for the model's device.
                figures = self.strategy.experimental_local_results(row)[0].numpy()
                groups = len(stage.parameter_groups)
                norm, loss = float(np.linalg.norm(figures[:groups])), float(figures[groups])
                finite = bool(np.isfinite(norm) and np.isfinite(loss))
                if finite:
                    self._run_update(total, scale, norms, factors)
                    for tensors, passed in passes:
                        if passed["auxiliary"]:
                            self._run_after_update(tensors, passed["auxiliary"], step)
        except tf.errors.OpError as error:
            if not ran_out_of_memory(error):
                raise
            raise out_of_memory(error, self.plan, batch_in_words(batches[0].replicas[0])) from error
        self._count_skips(finite)
        self.step_number += 1
        named = dict(zip(passes[0][1]["figures"], map(float, figures[groups + 1 :]), strict=True))
        return StepResult(self.step_number, loss, named, norm, skipped=not finite)

    def _count_skips(self, finite: bool) -> None:
        scale_blamed = self.loss_scale.learnt(finite)
        if finite:
            self._skipped_in_a_row = 0
            return
        self.skipped_steps += 1
        if scale_blamed:
            logger.info("step %d: skipped; the loss scale is now %g", self.step_number + 1, self.loss_scale.factor)
            return
        self._skipped_in_a_row += 1
        logger.warning("step %d: the gradient is not finite; the step is skipped", self.step_number + 1)
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{self._skipped_in_a_row} steps in a row had no finite gradient (up to step {self.step_number + 1})",
                hint="the last checkpoint is good: continue from it with a lower --learning-rate",
            )

    def _value_and_gradients(
        self, batch: Tensors, shares: Tensors, seed: tf.Tensor, step: tf.Tensor, loss_scale: tf.Tensor
    ) -> tuple[dict[str, dict[str, tf.Tensor]], dict[str, tf.Tensor], list[tf.Tensor], dict[str, tf.Tensor]]:
        """Each group's weighted terms, figures, all groups' gradients in a row, and one replica's auxiliary outputs.

        `shares` are of the global counts. Gradients are `loss_scale` times too large.
        """
        parameter_groups = {
            group: [v.value for v in own] for group, own in self.current_stage().parameter_groups.items()
        }
        # A tape for each group that sees its variables only: nothing is traced back into another group's network. It
        # halves the time that TensorFlow takes to build the decoder's graph with its discriminators.
        tapes = {group: tf.GradientTape(watch_accessed_variables=False) for group in parameter_groups}
        with ExitStack() as recording:
            for group, variables in parameter_groups.items():
                recording.enter_context(tapes[group]).watch(variables)
            objective = self.current_stage().objective(batch, seed=seed, step=step)
            terms = objective.weighted(shares, parameter_groups)
            losses = {group: loss_scale * tf.add_n(list(own.values())) for group, own in terms.items() if own}
        gradients: list[tf.Tensor] = []
        for group, variables in parameter_groups.items():
            if group in losses:
                zero = tf.UnconnectedGradients.ZERO
                gradients += tapes[group].gradient(losses[group], variables, unconnected_gradients=zero)
            else:
                gradients += [tf.zeros_like(variable) for variable in variables]
        return terms, objective.figures, [tf.convert_to_tensor(g) for g in gradients], objective.auxiliary

    def _distributed_gradients(self, batch: Any, seed: tf.Tensor, step: tf.Tensor, loss_scale: tf.Tensor) -> Any:
        def replica(batch: Tensors, seed: tf.Tensor, step: tf.Tensor, loss_scale: tf.Tensor) -> dict[str, Any]:
            context = tf.distribute.get_replica_context()
            number = 0 if context is None else context.replica_id_in_sync_group
            seed = tf.stack([seed[0], seed[1] + 1_000_003 * number])
            shares = shares_of_counts(self.current_stage().counts(batch))
            terms, figures, gradients, auxiliary = self._replica_gradients(batch, shares, seed, step, loss_scale)
            gradients, loss, summed = sums_with_loss(gradients, terms, figures, shares)
            return {"gradients": gradients, "loss": loss, "figures": summed, "auxiliary": auxiliary}

        return self.strategy.run(replica, args=(batch, seed, step, loss_scale))

    def _distributed_sum(self, left: Any, right: Any) -> Any:
        return self.strategy.run(lambda a, b: tf.nest.map_structure(tf.add, a, b), args=(left, right))

    def _distributed_norms(self, total: Any, scale: tf.Tensor, passes: Any) -> Any:
        """The norm of each parameter group's mean gradient, [groups], and the same with the passes' loss and figures
        behind it: a row for the host to read at once."""

        def norms(total: list[tf.Tensor], scale: tf.Tensor, passes: list[list[tf.Tensor]]) -> Any:
            lengths = scale * tf.stack([tf.linalg.global_norm(own) for own in self._by_group(total)])
            means = tf.add_n([tf.stack(own) for own in passes]) / float(len(passes))
            return lengths, tf.concat([lengths, means], 0)

        return self.strategy.run(norms, args=(total, scale, passes))

    def _distributed_update(self, total: Any, scale: tf.Tensor, norms: Any, factors: tf.Tensor) -> None:
        recipe, optimizer = self.recipe, self.optimizer
        assert recipe is not None
        assert optimizer is not None

        def clipped(total: list[tf.Tensor], scale: tf.Tensor, norms: tf.Tensor) -> list[tf.Tensor]:
            return clipped_means(self._by_group(total), scale, norms, recipe.clip_norm)

        optimizer.apply(self.strategy.run(clipped, args=(total, scale, norms)), factors)

    def _by_group(self, gradients: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        remaining = iter(gradients)
        return [list(itertools.islice(remaining, len(own))) for own in self.current_stage().parameter_groups.values()]

    def _distributed_after_update(self, batch: Any, auxiliary: Any, step: tf.Tensor) -> None:
        after_update = self.current_stage().after_update
        self.strategy.run(lambda b, a, s: after_update(b, a, step=s), args=(batch, auxiliary, step))

    # Validation

    def evaluate(self, batches: Sequence[DeviceBatch]) -> dict[str, float]:
        """Mean losses over held-out batches, without dropout and without learning."""
        step = tf.constant(np.int64(self.step_number))
        passes = []
        for batch in batches:
            tensors = self._per_replica(batch)
            if self._run_evaluation is None:
                self._run_evaluation = self._compiled(self._distributed_evaluation, tensors, step)
            passes.append(self._run_evaluation(tensors, step))
        first = self.strategy.experimental_local_results
        return {name: float(np.mean([float(first(own[name])[0]) for own in passes])) for name in passes[0]}

    def _distributed_evaluation(self, batch: Any, step: tf.Tensor) -> Any:
        def replica(batch: Tensors, step: tf.Tensor) -> dict[str, tf.Tensor]:
            stage = self.current_stage()
            shares = shares_of_counts(stage.counts(batch))
            objective = stage.objective(batch, seed=None, step=step)
            terms = objective.weighted(shares, stage.parameter_groups)
            _, loss, summed = sums_with_loss([], terms, objective.figures, shares)
            return {"loss": loss, **summed}

        return self.strategy.run(replica, args=(batch, step))

    # State

    def arrays(self) -> dict[str, np.ndarray]:
        """Every variable of the stage and its optimiser, by name."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables().items()}

    def set_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, variable in self._variables().items():
            variable.assign(arrays[name])

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of this stage; names or shapes that differ are an error that lists them."""
        refuse_other_model(checkpoint, self._variables(), self.current_stage().name)
        self.set_arrays(checkpoint.arrays)
        self.step_number = checkpoint.step
        self.skipped_steps = int(checkpoint.state.get("skipped_steps", 0))
        self.loss_scale.set_state(checkpoint.state.get("loss_scale"))
        self.current_stage().set_state(checkpoint.state, self.config.training)

    def _resume(self, path: Path, *, untrained: bool) -> None:
        """Start the stage of a named checkpoint where it stood; an `untrained` model first gets what it requires."""
        if not path.is_dir():
            raise CheckpointError(
                f"checkpoint {path} does not exist", hint="find_latest_checkpoint(RUN) names the newest"
            )
        checkpoint, training = load_checkpoint(path), self.config.training
        refuse_other_configuration(checkpoint.state.get("config", {}), self.config, path)
        spec = stage_named(checkpoint.state["stage"], self.config.model)
        if untrained:
            load_required_parts(spec, self.model, path, Path(training.run_dir))
        self.pretrained_parts = frozenset(training.init_parts)
        recipe = recipe_for(self.config, spec)
        self.start_stage(spec.name, with_steps(recipe, checkpoint.state.get("total_steps", recipe.steps)))
        self.restore(checkpoint)

    def _variables(self) -> dict[str, Any]:
        stage = self.current_stage()
        assert self.optimizer is not None
        optimizer = {f"optimizer/{i:04d}": v for i, v in enumerate(self.optimizer.variables)}
        return {**{f"model/{name}": v for name, v in stage.variables.items()}, **optimizer}

    # Batches on devices

    def current_stage(self) -> TrainingStage:
        if self.stage is None:
            self.start_stage(self.config.training.stage or "gpt")
        assert self.stage is not None
        return self.stage

    def _whole_batch(self, tensors: Tensors) -> DeviceBatch:
        replicas = self.strategy.num_replicas_in_sync
        parts = split_rows(tensors, replicas) if replicas > 1 else [tensors]
        return DeviceBatch(0, tuple(parts), {})

    def _per_replica(self, batch: DeviceBatch) -> Any:
        if len(batch.replicas) == 1:
            return dict(batch.replicas[0])
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: dict(batch.replicas[context.replica_id_in_sync_group])
        )
