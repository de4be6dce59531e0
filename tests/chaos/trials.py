"""Trials: runs that suffer one fault after another, what must hold after each, and the figures of all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.kinds import KINDS, Trial
from tests.chaos.runs import MODES, STAGES, STEPS, Arena, Broken, Ledger, Losses, Reference, check_said

MOST_FAULTS = 6


class Chaos:
    """Trials over one arena, and their figures."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.arena, self.seed = Arena(folder), seed
        self.faults: Counter[str] = Counter()
        """Those that came."""
        self.missed: Counter[str] = Counter()
        """Those that waited for something that the process did not do any more."""
        self.failures: list[dict[str, Any]] = []
        self.trials = 0
        self.on_failure: Callable[[dict[str, Any]], None] = lambda failure: None
        self._references: dict[str, Reference] = {}

    def reference(self, mode: str) -> Reference:
        if mode not in self._references:
            self._references[mode] = Reference(self.arena, mode)
        return self._references[mode]

    def trial(self, number: int) -> None:
        """One run, from its first process to its end; what does not hold is noted, and how to see it again."""
        drawn = random.Random(f"{self.seed}/{number}")
        mode, stage = drawn.choice(list(MODES)), drawn.choice(STAGES)
        done: list[str] = []
        try:
            reference = self.reference(mode)
            self.arena.restore(mode, stage)
            weights = [weight for _, weight in KINDS.values()]
            names = drawn.choices(list(KINDS), weights, k=drawn.randint(1, MOST_FAULTS))
            self.suffer(Trial(self.arena, reference, mode, stage, drawn), names, done)
        except Broken as broken:
            again = f"python -m tests.chaos --seed {self.seed} --trial {number}"
            self.failures.append({"again": again, "mode": mode, "stage": stage, "faults": done, "what": str(broken)})
            self.on_failure(self.failures[-1])
        self.trials += 1

    def suffer(self, trial: Trial, names: Sequence[str], done: list[str]) -> None:
        """A process for each of the faults, then one without; raises `Broken` for what does not hold.

        A run that has come to its end has little left to suffer: the faults after it are left out.
        """
        ledger = Ledger(trial.arena.run)
        ledger.read()
        for name in names:
            done.append(name)
            newest = trial.newest()
            ending = KINDS[name][0](trial)
            (self.faults if ending.happened else self.missed)[f"{name} | {trial.mode} | {trial.stage}"] += 1
            check_said(ending)
            if name == "damage" and trial.victim.name == "events.jsonl":
                ledger.pass_over()
            learnt = ledger.read()
            self._check_losses(trial, learnt, newest)
            if ending.code == 0 and name == "terminate":
                self._check_all_saved(trial, learnt)
            if ending.code == 0 and trial.newest() == STEPS:
                break
        newest = trial.newest()
        ending = trial.run()
        check_said(ending)
        if ending.code:
            raise Broken(f"cannot go on after the faults: {ending.said[-3000:]}")
        self._check_losses(trial, ledger.read(), newest)
        trial.reference.check_weights(trial.arena, trial.stage)
        if left := list(trial.arena.run.rglob(".writing-*")):
            raise Broken(f"left behind: {left}")

    def _check_losses(self, trial: Trial, losses: Losses, newest: int) -> None:
        """Those of the uninterrupted run, from the step after the newest checkpoint on."""
        expected = trial.reference.losses
        if wrong := {key: (loss, expected.get(key)) for key, loss in losses.items() if loss != expected.get(key)}:
            raise Broken(f"other losses than those of the uninterrupted run: {wrong}")
        first = min((step for stage, step in losses if stage == trial.stage), default=newest + 1)
        lost = bool(trial.damaged) and first <= newest
        if first != newest + 1 and not lost:
            raise Broken(f"goes on at step {first}, and the newest checkpoint is of step {newest}")

    def _check_all_saved(self, trial: Trial, learnt: Losses) -> None:
        """What the process learnt that was asked to stop; one before it may have learnt more, and have been killed."""
        steps = [step for stage, step in learnt if stage == trial.stage]
        newest = trial.newest()
        if not trial.damaged and max(steps, default=0) > max(newest, 0) and "Stopped and saved" in trial.arena.said():
            raise Broken(f"asked to stop, it saved step {newest} of {max(steps)}")

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "trials": self.trials,
            "faults": sum(self.faults.values()),
            "missed": sum(self.missed.values()),
            "steps_each": STEPS,
            "failures": self.failures,
            "by_kind": dict(sorted(self.faults.items())),
            "missed_by_kind": dict(sorted(self.missed.items())),
        }

    def go_on_from(self, summary: dict[str, Any]) -> None:
        if summary.get("seed") == self.seed:
            self.trials, self.failures = summary["trials"], summary["failures"]
            self.faults.update(summary["by_kind"])
            self.missed.update(summary["missed_by_kind"])
