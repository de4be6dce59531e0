"""How far a command has come, where there is no terminal."""

from __future__ import annotations

import pytest

from myxtts.cli.progress import EVERY_S, NowAndThen, counted


def test_lines_come_now_and_then_and_at_the_end() -> None:
    clock = [0.0]
    lines = NowAndThen(lambda: clock[0])

    due = []
    for done in range(1, 31):
        clock[0] += EVERY_S / 10
        if lines.due(done, 30):
            due.append(done)

    assert due == [10, 20, 30]


def test_without_a_terminal_the_last_count_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    show = counted("evaluated")

    for done in (1, 2, 3):
        show(done, 3)

    assert capsys.readouterr().err == "evaluated 3 of 3\n"
