"""`myxtts train`, also `python train_main.py`: plan the devices, then train; `--dry-run` prints the plan."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from myxtts.cli.flags import defaults_beneath, parse_options
from myxtts.cli.hidden_flags import split_hidden, warning_of
from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.errors import ConfigError, DataError
from myxtts.monitoring.log import setup_logging
from myxtts.monitoring.terminal import drop_output, escaped
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, for_model_workers, plan_devices
from myxtts.runtime.precision import choose_precision
from myxtts.runtime.workers import place_in
from myxtts.text.languages import AUTO, find_language

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Train a voice from a folder of recordings. Continues from the run folder's last checkpoint.

    Examples:
      myxtts train --train-data DIR --run-dir runs/mine
      myxtts train --train-data DIR --data-gpu 0 --model-gpu 1                     (two GPUs)
      myxtts train --train-data DIR --data-gpu 0 --model-gpu 1 --simulate-gpus 2   (the same without a GPU)
      myxtts train --train-data DIR --dry-run                                      (what would happen)
    """

    settings: Annotated[XTTSConfig, tyro.conf.arg(name="")]

    config: str | None = None
    """YAML file of settings, of which docs/settings.md has the list; flags win over it."""

    fresh: bool = False
    """Start over: move the run's earlier checkpoints aside instead of resuming from them."""

    dry_run: bool = False
    """Look at the corpus, print the device plan, the memory, the settings and a summary, and train nothing."""

    debug: bool = False
    """Show the traceback of an error."""


OPTIONS = TrainOptions


def main(argv: list[str]) -> int:
    argv, hidden = split_hidden(argv)
    if hidden:
        _print_warning(warning_of(hidden))
    defaults = TrainOptions(settings=defaults_beneath(argv, hidden))
    options = parse_options(TrainOptions, argv, command="train", default=defaults)
    _refuse_early(options.settings.data)
    config = _resolved(options.settings, fresh=options.fresh)
    if config.training.cluster is not None:
        return _on_cluster(config, options)
    inventory = find_inventory(config.training.simulate_gpus)
    place = place_in(os.environ)
    plan = for_model_workers(plan_devices(DeviceRequest.from_config(config), inventory), place.size)
    precision = choose_precision(config.training.mixed_precision, plan)
    if options.dry_run:
        from myxtts.cli.dry_run import dry_run_lines

        for line in dry_run_lines(config, plan, precision, inventory, fresh=options.fresh):
            print(escaped(line))
        return 0
    _refuse_without_data(config)
    setup_logging()
    _warn_of_size(config, plan)
    return _train(config, plan, fresh=options.fresh, worker=place.number)


def _on_cluster(config: XTTSConfig, options: TrainOptions) -> int:
    from myxtts.cluster.driver import plan_lines, run_on_cluster

    if options.dry_run:
        from myxtts.cli.dry_run import settings_lines

        for line in [*plan_lines(config), "", *settings_lines(config)]:
            print(escaped(line))
        return 0
    _refuse_without_data(config)
    setup_logging()
    return run_on_cluster(config, fresh=options.fresh, live_console=sys.stderr.isatty())


def _refuse_without_data(config: XTTSConfig) -> None:
    if config.data.train_data is None:
        raise ConfigError(
            "--train-data was not given: there is nothing to train on",
            hint="name a folder of recordings, or make one first: myxtts demo-corpus demo --minutes 5 && "
            "myxtts train --train-data demo --init-from base",
        )


def _print_warning(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        drop_output(sys.stderr)  # its reader is gone, as where `tee` was killed; training goes on


def _warn_of_size(config: XTTSConfig, plan: DevicePlan) -> None:
    size, chosen = config.model.model_size, config.training.init_from is None
    if chosen and size != "tiny" and (plan.mode == "cpu" or plan.simulated):
        logger.warning(
            "Size %s is made for GPUs and there is none: --model-size tiny learns half an hour of speech from nothing "
            "in about an hour of one core, --init-from base starts from the built-in voice",
            size,
        )


def _refuse_early(data: DataConfig) -> None:
    """Refuse what is wrong before TensorFlow is loaded and a corpus is prepared, which may take hours."""
    if data.language != AUTO:
        find_language(data.language)
    for flag, corpus in (("--train-data", data.train_data), ("--val-data", data.val_data)):
        if corpus is not None and not Path(corpus).exists():
            raise DataError(f"{flag} {corpus} is not there", hint="give the folder that holds metadata.csv and wavs/")


def _resolved(config: XTTSConfig, *, fresh: bool) -> XTTSConfig:
    if config.training.init_from is None:
        return config
    from myxtts.training.initial_voice import resolved_config

    return resolved_config(config, fresh=fresh, over_voice=True)


def _train(config: XTTSConfig, plan: DevicePlan, *, fresh: bool, worker: int) -> int:
    from myxtts.training.run import run_training

    return run_training(config, plan, fresh=fresh, live_console=sys.stderr.isatty(), worker=worker)
