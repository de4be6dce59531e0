"""This process's place among the model workers of a run, and what they decide together.

All workers run the same loop over the same positions, and each collective operation is one that all of them come to:
whether there is another step is decided together, because a worker that went on alone would wait for ever. Only the
chief, number 0, writes. A run in one process is a team of one, which agrees with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from myxtts.errors import TrainingError
from myxtts.pipeline import split_rows
from myxtts.pipeline.batches import BatchSource, HostBatch, State, Tensors
from myxtts.runtime.workers import multi_worker_strategy

T = TypeVar("T")


class Team:
    """Model worker `number` of `size`."""

    def __init__(self, number: int = 0, size: int = 1) -> None:
        self.number, self.size = number, size

    @property
    def is_chief(self) -> bool:
        return self.number == 0

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is true for one of the workers at least."""
        return [bool(total) for total in self._totals([np.array(flags, np.int64)])[0]]

    def meet(self) -> None:
        """Returns when all workers have come here."""
        self._totals([np.ones(1, np.int64)])

    def in_turn(self, work: Callable[[], T]) -> T:
        """The chief's work first, then that of the others, who find what it has written."""
        if not self.is_chief:
            self.meet()
            return work()
        done = work()
        self.meet()
        return done

    def refuse_different(self, what: str, value: int) -> None:
        """All workers must have the same small number, or they would learn different things."""
        of_chief = int(self.of_chief({what: np.array(value, np.int64)})[what])
        if self.any(value != of_chief)[0]:
            raise TrainingError(
                f"model worker {self.number} of {self.size} has {what} {value}, the chief {of_chief}",
                hint="the run's folder and --cache-dir must be storage that all nodes share",
            )

    def of_chief(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The chief's arrays, on every worker."""
        own = [array if self.is_chief else np.zeros_like(array) for array in arrays.values()]
        return dict(zip(arrays, self._totals(own), strict=True))

    def own_rows(self, tensors: Tensors, parts: int = 1) -> list[Tensors]:
        """A pipeline's split: of a whole batch, the rows of this worker."""
        assert parts == 1, "a model worker has one device"
        return [split_rows(tensors, self.size)[self.number]]

    def _totals(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Each array's sum over the workers."""
        if self.size == 1:
            return list(arrays)
        import tensorflow as tf

        totals = self._sum([tf.constant(array) for array in arrays])
        return [np.asarray(multi_worker_strategy().experimental_local_results(total)[0]) for total in totals]

    @cached_property
    def _sum(self) -> Any:
        import tensorflow as tf

        def replica(values: Any) -> Any:
            # Made anew under the replica's device: a function's arguments are on none, and cannot be reduced.
            own = [tf.identity(value) for value in values]
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)

        return tf.function(lambda values: multi_worker_strategy().run(replica, args=(values,)), autograph=False)


class OwnRows:
    """A source's batches with the rows of one worker only: for workers that do their data work themselves."""

    def __init__(self, source: BatchSource, team: Team) -> None:
        self._source, self._team = source, team

    def __next__(self) -> HostBatch:
        return self._team.own_rows(next(self._source))[0]

    def get_state(self) -> State:
        return self._source.get_state()

    def set_state(self, state: State) -> None:
        self._source.set_state(state)
