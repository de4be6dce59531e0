"""Where a reader of batches stands: a few integers that a checkpoint carries.

Nothing of Grain's own state is in it, so a run may go on with another number of workers or threads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from myxtts.errors import DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReaderState:
    """The next batch is number `position` of this reader's share of `epoch`."""

    epoch: int
    position: int
    seed: int
    batches_per_epoch: int
    reader: int
    readers: int

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ReaderState:
        names = set(cls.__dataclass_fields__)
        if set(raw) != names or not all(isinstance(value, int) for value in raw.values()):
            raise DataError(
                f"a data state has {sorted(raw)} instead of the integers {sorted(names)}",
                hint="the checkpoint is of another version; start afresh with --fresh",
            )
        return cls(**raw)

    def check_against(self, now: ReaderState) -> None:
        """Refuse a state of another plan: its position would mean other clips."""
        for name, why in (
            ("seed", "--seed was changed"),
            ("batches_per_epoch", "the corpus or the batch settings were changed"),
            ("readers", "the number of readers was changed"),
            ("reader", "the readers were renumbered"),
        ):
            saved, current = getattr(self, name), getattr(now, name)
            if saved != current:
                raise DataError(
                    f"the data state was saved with {name} {saved}, now it is {current}: {why}",
                    hint="resume with the settings of the run's config.yaml, or start afresh with --fresh",
                )
        if not (self.epoch >= 0 and 0 <= self.position < self.batches_per_epoch):
            raise DataError(
                f"the data state is at batch {self.position} of {self.batches_per_epoch} in epoch {self.epoch}",
                hint="the checkpoint is damaged; resume from the one before it",
            )


def place_in_plan(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Where a reader whose settings are the saved one's goes on: at the saved place, if the plan has as many batches.

    Where clips came or went it has not, and a position of the saved plan means nothing in it: the epoch that was begun
    is left, and the next one read from its start.
    """
    place = ReaderState.from_dict(saved)
    if place.batches_per_epoch == now["batches_per_epoch"]:
        return dict(saved)
    logger.warning(
        "An epoch has %d batches and had %d: reading goes on with the start of epoch %d",
        now["batches_per_epoch"],
        place.batches_per_epoch,
        place.epoch + 2,  # counted from 1 for people
    )
    return {**now, "epoch": place.epoch + 1, "position": 0}
