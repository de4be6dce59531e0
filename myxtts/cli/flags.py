"""Flags from dataclasses: one help text a field, flat names, and YAML and presets as the defaults beneath them."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from myxtts.config.config import SECTIONS, XTTSConfig
from myxtts.config.gpus import GpuIndices
from myxtts.config.loading import read_yaml
from myxtts.config.parts import voice_parts
from myxtts.config.public import FLAGS, flag
from myxtts.config.training import TrainingConfig

Options = TypeVar("Options")

FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
"""A setting's flag is its own name, without that of its section."""

registry = tyro.constructors.ConstructorRegistry()


@registry.primitive_rule
def _gpu_indices(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    wanted: Any = GpuIndices
    if info.type != wanted:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT[,INT...]",
        # The section that has the field reads the numbers, and names its flag where they are none.
        instance_from_str=lambda words: None if words[0] == "None" else words[0],
        is_instance=lambda value: value is None or isinstance(value, (int, str, tuple)),
        str_from_instance=lambda value: [",".join(map(str, value)) if isinstance(value, tuple) else str(value)],
    )


@registry.primitive_rule
def _optional(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """A setting that may be left out is shown as the value that it takes, without the word None."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if len(kinds) != 1 or NoneType not in get_args(info.type):
        return None
    kind = kinds[0]
    choices = get_args(kind) if get_origin(kind) is Literal else None
    if choices is None and kind not in (int, float, str, Path):
        return None

    def read(words: list[str]) -> Any:
        return None if words[0] == "None" else words[0] if choices else kind(words[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper() if choices is None else f"{{{','.join(choices)}}}",
        instance_from_str=read,
        is_instance=lambda value: value is None or choices is not None or isinstance(value, (int, float, str, Path)),
        str_from_instance=lambda value: [str(value)],
        choices=None if choices is None else (*choices, "None"),
    )


@registry.struct_rule
def _flags_of_a_section(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
    """Of a config section only the settings in `FLAGS` are flags; the others keep the value of the default."""
    section: Any = info.type
    if section not in SECTIONS.values():
        return None
    from myxtts.config.reference import field_help

    default = info.default if isinstance(info.default, section) else section()
    types, texts = get_type_hints(section), field_help(section)
    types |= {name: kind for name, kind in _named_in_tables().items() if name in types}
    fields = tuple(
        tyro.constructors.StructFieldSpec(
            name=name, type=types[name], default=getattr(default, name), helptext=texts[name]
        )
        for name in FLAGS
        if name in types
    )

    def build(**given: Any) -> Any:
        return dataclasses.replace(default, **given)

    build.__doc__ = section.__doc__  # which the help shows above the section's flags
    return tyro.constructors.StructConstructorSpec(instantiate=build, fields=fields)


def _named_in_tables() -> dict[str, Any]:
    """The types of the settings that name what a table declares: the names that it has now."""
    from myxtts.training.stages import stage_names

    stage: Any = Literal.__getitem__(stage_names())
    part: Any = Literal.__getitem__(voice_parts())
    return {"stage": stage | None, "init_parts": tuple.__class_getitem__((part, ...))}


def parse_options(
    options: type[Options], argv: Sequence[str], *, command: str, default: Options | None = None
) -> Options:
    """Parse a command's options. Wrong flags end the process with code 2 and a suggestion, as tyro words it."""
    arguments: dict[str, Any] = {} if default is None else {"default": default}
    with registry:
        parsed: Options = tyro.cli(
            options,
            args=list(argv),
            prog=f"myxtts {command}",
            # Given whole: left to itself, tyro takes the examples for a section of the docstring and drops them.
            description=inspect.cleandoc(options.__doc__ or ""),
            config=FLAT,
            **arguments,
        )
    return parsed


def defaults_beneath(argv: Sequence[str], hidden: dict[str, Any] | None = None) -> XTTSConfig:
    """The configuration before flags: presets, the voice of `--init-from`, the YAML file, and `hidden` flags' settings.

    Named presets and the voice decide what other flags have as their default, so they are looked up first.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("config", "model_size", "optimization_level", "init_from", "run_dir"):
        first.add_argument(flag(name), f"--{name}")  # both spellings, as the full parse takes them
    first.add_argument("--init-parts", "--init_parts", nargs="*", default=())
    first.add_argument("--fresh", action="store_true")
    try:
        known, _ = first.parse_known_args(list(argv))
    except argparse.ArgumentError:
        return XTTSConfig()  # A flag without its value: the full parse reports it.
    flat = read_yaml(known.config) if known.config else {}
    named = {name: getattr(known, name) for name in ("model_size", "optimization_level", "init_from", "run_dir")}
    flat |= {name: value for name, value in named.items() if value is not None}
    flat |= hidden or {}
    if flat.get("init_from") is not None:
        from myxtts.training.initial_voice import settings_beneath

        run_dir = None if known.fresh else flat.get("run_dir", TrainingConfig().run_dir)
        parts = known.init_parts or flat.get("init_parts", ())
        flat = settings_beneath(flat["init_from"], run_dir, parts) | flat
    return XTTSConfig(**flat)


def changed_by_level(config: XTTSConfig) -> str:
    """What `--optimization-level` stands for, for the log."""
    from myxtts.config.presets import OPTIMIZATION_LEVELS

    level = config.training.optimization_level
    values = dataclasses.asdict(config.training)
    return f"Optimization level {level}: " + ", ".join(f"{name}={values[name]}" for name in OPTIMIZATION_LEVELS[level])
