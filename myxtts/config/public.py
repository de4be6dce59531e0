"""Which settings are flags of `myxtts train`. All others are set in a YAML file, named with `--config`."""

from __future__ import annotations

FLAGS = (
    # data
    "train_data",
    "val_data",
    "language",
    "corpus_format",
    "cache_dir",
    "text_frontend",
    "extra_tokens",
    "batch_size",
    "batch_seconds",
    "num_workers",
    "data_gpu",
    "model_gpu",
    "buffer_size",
    "model_start_delay",
    # model
    "model_size",
    # training
    "run_dir",
    "checkpoint_dir",
    "stage",
    "init_from",
    "init_parts",
    "epochs",
    "max_steps",
    "learning_rate",
    "grad_accum",
    "seed",
    "log_every",
    "samples",
    "optimization_level",
    "mixed_precision",
    "deterministic",
    "multi_gpu",
    "visible_gpus",
    "enable_memory_isolation",
    "data_gpu_memory",
    "model_gpu_memory",
    "simulate_gpus",
    "cluster",
    "data_workers",
    "model_workers",
    "max_restarts",
    "elastic",
)
"""In the order in which `myxtts train --help` lists them."""


def flag(name: str) -> str:
    """How a setting is spelt on the command line."""
    return f"--{name.replace('_', '-')}"


def shown(name: str) -> str:
    """A setting in a message, as a user can change it: a flag, or a setting of a YAML file."""
    return flag(name) if name in FLAGS else f"setting {name}"
