"""The deterministic part of `python -m tests.chaos`: one run, one stage, a fault of each family."""

from __future__ import annotations

import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.kinds import KINDS, Trial
from tests.chaos.runs import Arena, Broken, Reference, own_seconds
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

        assert sorted(key.split(" | ")[0] for key in chaos.faults) == sorted(names), "each of them came"
        too_late = replace(arena.watched(), action="signal", value=signal.SIGKILL, at=10**6)
        assert not arena.ended(arena.start(arena.command("single", "codec"), too_late)).happened

        reference.losses["codec", 2] += 1.0
        arena.restore("single", "codec")
        with pytest.raises(Broken, match="other losses"):
            chaos.suffer(Trial(arena, reference, "single", "codec", random.Random(3)), [], [])
    finally:
        arena.close()


def test_a_process_that_gets_no_cpu_does_not_hang(tmp_path: Path) -> None:
    for thread, waited_ns in (("7", 880_000_000_000), ("8", 0)):
        (tmp_path / "7" / "task" / thread).mkdir(parents=True)
        (tmp_path / "7" / "task" / thread / "schedstat").write_text(f"2000000000 {waited_ns} 55\n")

    assert own_seconds(7, 900.0, tmp_path) == 20.0
    assert own_seconds(8, 900.0, tmp_path) == 900.0, "nothing is known of it"
