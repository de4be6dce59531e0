"""The deterministic part of `python -m tests.chaos`: one run, one stage, a fault of each family."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.kinds import KINDS, Trial
from tests.chaos.runs import Arena, Broken, Reference
from tests.chaos.trials import Chaos


@pytest.mark.slow
def test_a_run_that_is_killed_starved_and_damaged_loses_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=3)
    arena: Arena = chaos.arena
    try:
        reference = Reference(arena, "single", stages=("codec",))
        arena.restore("single", "codec")
        names = ["kill_at_a_change", "one_error", "damage"]
        assert set(names) <= set(KINDS)

        chaos.suffer(Trial(arena, reference, "single", "codec", random.Random(3)), names, [])

        reference.losses["codec", 2] += 1.0
        arena.restore("single", "codec")
        with pytest.raises(Broken, match="other losses"):
            chaos.suffer(Trial(arena, reference, "single", "codec", random.Random(3)), [], [])
    finally:
        arena.close()
