"""`myxtts train --dry-run`: what would run where, whether the corpus can be read, a summary; loads no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from myxtts.audio.io import opened_audio
from myxtts.cli.flags import changed_by_level
from myxtts.cli.memory import estimates, memory_lines
from myxtts.cli.suited import suited_commands
from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values, to_yaml_text
from myxtts.data.corpora import list_corpus
from myxtts.errors import DataError
from myxtts.models.parameter_counts import count_of, counted
from myxtts.monitoring.console import duration
from myxtts.runtime.inventory import Inventory
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.precision import Precision
from myxtts.training.memory_estimate import largest_batch
from myxtts.training.recipes import length_of, stages_to_run
from myxtts.training.run import refuse_what_cannot_go_on
from myxtts.training.run_folder import RunFolder
from myxtts.training.time_estimate import batches_of, cpu_seconds, measured_speed

_MOST_OPENED = 300
"""Clips whose length is read from their files; of more, as many are taken at even distances."""


@dataclass(frozen=True)
class Corpus:
    """What a look at a corpus says of it."""

    clips: int
    seconds: float
    refused: int
    unreadable: int
    """Of those that were opened."""


def dry_run_lines(
    config: XTTSConfig, plan: DevicePlan, precision: Precision, inventory: Inventory, *, fresh: bool
) -> Iterator[str]:
    """The device plan, the memory estimate, the chosen settings, and the summary.

    With a corpus, first it and the run's folder are looked at: raises where no clip can be read, and where the run that
    is there cannot go on so.
    """
    folder, corpus = RunFolder(config.training.run_dir, config.training.checkpoint_dir), None
    if config.data.train_data is not None:
        refuse_what_cannot_go_on(config, folder, fresh)
        corpus = look_at(config.data.train_data, config)
    data_devices = ", ".join(role.label for role in plan.producers or plan.models[:1])
    yield f"Plan: {plan.mode} mode"
    yield f"   data on {data_devices}"
    yield f"   model on {', '.join(role.label for role in plan.models)}"
    yield f"   hidden: {', '.join(f'GPU {index}' for index in plan.hidden) or 'none'}"
    yield f"   precision: {precision}"
    yield f"   {changed_by_level(config)}"
    yield ""
    yield from memory_lines(config, plan, inventory, precision)
    yield ""
    yield from settings_lines(config)
    yield ""
    yield "Summary (nothing was trained):"
    if corpus is not None:
        there = "a new one" if not folder.has_saved() else "moved aside for a new one" if fresh else "goes on"
        yield f"   run: {folder.path}, {there}"
    yield from (f"   {line}" for line in summary(config, plan, precision, inventory, corpus))


def settings_lines(config: XTTSConfig) -> Iterator[str]:
    """The settings as YAML, without those that have their defaults: of a hundred, a dozen matter."""
    defaults = as_plain_values(XTTSConfig())
    chosen = {
        section: {name: value for name, value in settings.items() if value != defaults[section][name]}
        for section, settings in as_plain_values(config).items()
    }
    chosen = {section: settings for section, settings in chosen.items() if settings}
    yield "Settings that differ from their defaults (docs/settings.md has all):"
    yield to_yaml_text(chosen).rstrip() if chosen else "none"


def summary(
    config: XTTSConfig, plan: DevicePlan, precision: Precision, inventory: Inventory, corpus: Corpus | None
) -> Iterator[str]:
    """Clips, hours, parameters, steps, time, memory of each device, and what suits this machine."""
    if corpus is None:
        yield "corpus: --train-data names none"
    else:
        refused = f", {corpus.refused} lines refused" if corpus.refused else ""
        unreadable = f", {corpus.unreadable} of those looked at cannot be opened" if corpus.unreadable else ""
        yield f"corpus: {corpus.clips:,} clips, {corpus.seconds / 3600:.2f} hours{refused}{unreadable}"
    known = counted(config.model.parts)
    beside = [part for part in config.model.parts if part not in known]
    more = f", and those of {', '.join(beside)}" if beside else ""
    yield f"parameters: {sum(count_of(part, config.model).all for part in known):,}{more}"
    if corpus is not None:
        yield from _times(config, plan, corpus)
    largest: dict[str, float] = {}
    for spec in stages_to_run(config):
        for label, need in estimates(config, spec, plan, largest_batch(config, spec), precision).items():
            largest[label] = max(largest.get(label, 0.0), need.total)
    yield "memory: " + (", ".join(f"{label} {mb:,.0f} MB" for label, mb in largest.items()) or "not estimated")
    if config.training.init_from is None and not plan.simulated:
        yield from (
            f"on this machine: {command}   ({why})" for command, why in suited_commands(inventory, trains=True)[:1]
        )


def _times(config: XTTSConfig, plan: DevicePlan, corpus: Corpus) -> Iterator[str]:
    on_cpu = plan.mode == "cpu" or plan.simulated
    speed = measured_speed() if on_cpu else 0.0
    known_s, unknown = 0.0, []
    for spec in stages_to_run(config):
        steps = length_of(config, spec, batches_of(config, spec, corpus.clips, corpus.seconds)).steps
        mean_s = corpus.seconds / corpus.clips
        seconds = cpu_seconds(config, spec, steps, mean_s, speed) if on_cpu else None
        known_s += seconds or 0.0
        unknown += [spec.name] if seconds is None else []
        yield f"{spec.name}: {steps:,} steps" + ("" if seconds is None else f", about {duration(seconds)} of one core")
    if not on_cpu:
        yield "time: not known of a GPU beforehand; myxtts bench placement measures it"
    elif not known_s:
        yield f"time: not known of {' and '.join(unknown)} on a CPU, where it was not measured"
    else:
        beside = f" and that of {' and '.join(unknown)}, which was not measured on a CPU" if unknown else ""
        yield (
            f"time: about {duration(known_s)} of one core{beside}; reckoned from {speed / 1e9:.0f} billion operations "
            "a second, measured now; it may be half or twice that"
        )


def look_at(corpus: str, config: XTTSConfig) -> Corpus:
    """List a corpus and open some of its clips; raises `DataError` where none can be used."""
    listing = list_corpus(Path(corpus), corpus_format=config.data.corpus_format, language=config.data.language)
    if not listing.entries:
        first = listing.refusals[0]
        raise DataError(
            f"no clip of {corpus} can be used: {first.file} line {first.line}: {first.reason}",
            hint="mend the lines; myxtts prepare lists them all",
        )
    count = min(len(listing.entries), _MOST_OPENED)
    lengths, problem = [], None
    for place in np.linspace(0, len(listing.entries) - 1, count).astype(int):
        try:
            with opened_audio(listing.root / listing.entries[place].audio.path) as sound:
                lengths.append(sound.frames / sound.samplerate)
        except DataError as error:
            problem = error
    if not lengths:
        assert problem is not None
        raise problem
    share = len(lengths) / count
    clips = round(len(listing.entries) * share)
    return Corpus(clips, clips * float(np.mean(lengths)), len(listing.refusals), count - len(lengths))
