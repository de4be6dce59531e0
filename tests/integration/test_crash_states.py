"""Power cuts: every state that the recorded operations allow is the old one or the new one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash import Disk, Operation
from tests.crash.check import check_writer
from tests.crash.writers import WRITERS


@pytest.mark.parametrize("name", WRITERS)
def test_a_power_cut_leaves_the_old_state_or_the_new_one(name: str, tmp_path: Path) -> None:
    checked = check_writer(name, tmp_path)

    assert checked.bad == []
    assert checked.states > checked.operations / 2 > 5


def test_what_was_not_synced_may_be_lost_in_any_combination() -> None:
    disk = Disk(Path("/d"))
    for kind, path, other, data in (
        ("create", "/d/a", "1", b""),
        ("write", "/d/a", "1", b"new"),
        ("sync", "/d/a", "1", b""),
        ("rename", "/d/a", "/d/b", b""),
    ):
        disk.do(Operation(kind, path, other, 0, data))

    possible = [tuple(sorted(tree.items())) for tree in disk.possible(random.Random(0))]

    assert set(possible) == {(), (("a", b"new"),), (("b", b"new"),)}
