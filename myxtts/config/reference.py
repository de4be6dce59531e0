"""The page of all settings, written from the dataclasses: a field's docstring is its help text."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from myxtts.config.config import SECTIONS
from myxtts.config.presets import MODEL_SIZES, NOT_GIVEN, OPTIMIZATION_LEVELS
from myxtts.config.public import FLAGS, shown
from myxtts.config.training import FROM_SCRATCH, OPTIMISER_SETTINGS

RECIPE_SETTINGS = (*OPTIMISER_SETTINGS, "batch_size", "batch_seconds", "max_steps")


def field_help(cls: type) -> dict[str, str]:
    """The docstring that stands below each field of a dataclass and of those that it extends."""
    texts: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, cls.__mro__):
        texts.update(_own_field_help(base))
    return texts


def _own_field_help(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(following.value.value).split())
    return texts


def settings_page() -> str:
    """docs/settings.md: flags first, then what is set in a YAML file only, then the presets."""
    lines = [
        "# Settings",
        "",
        "Every setting is a line of a YAML file for `--config` (`batch_size: 16`, alone or below its section) and a",
        "field of `XTTSConfig`; those of the first table are also flags of `myxtts train` (`--batch-size 16`). Flags",
        "win over YAML, YAML over presets and recipes. `--config FILE`, `--fresh`, `--dry-run` and `--debug` are flags",
        "only. This page is written by `python -m tools.write_settings`.",
        "",
        "## Flags",
        "",
        *_settings_table("flag", FLAGS, shown),
        "",
        "## YAML only",
        "",
        "```yaml",
        "# myxtts train --config settings.yaml",
        "gpt_layers: 8",
        "training:",
        "  weight_decay: 0.02",
        "```",
    ]
    for section, cls in SECTIONS.items():
        names = [item.name for item in dataclasses.fields(cls) if item.name not in FLAGS]
        lines += ["", f"### {section}", "", f"{cls.__doc__}", "", *_settings_table("setting", names, str)]
    lines += ["", "## Presets", "", "`--model-size`:", "", *_presets_table(MODEL_SIZES)]
    lines += ["", "`--optimization-level`:", "", *_presets_table(OPTIMIZATION_LEVELS)]
    return "\n".join(lines) + "\n"


def _settings_table(head: str, names: Iterable[str], spelt: Callable[[str], str]) -> list[str]:
    fields = {item.name: item for cls in SECTIONS.values() for item in dataclasses.fields(cls)}
    texts = {name: text for cls in SECTIONS.values() for name, text in field_help(cls).items()}
    rows = [f"| `{spelt(name)}` | {_default(fields[name])} | {_cell(texts[name])} |" for name in names]
    return [f"| {head} | default | what |", "|---|---|---|", *rows]


def _default(item: Any) -> str:
    if item.default is not NOT_GIVEN:
        return f"`{str(item.default).lower() if isinstance(item.default, bool) else item.default}`"
    if any(item.name in values for values in (*MODEL_SIZES.values(), *OPTIMIZATION_LEVELS.values())):
        return "preset"
    if item.name in RECIPE_SETTINGS:
        return "recipe"
    return f"`{FROM_SCRATCH[item.name]}`" if item.name in FROM_SCRATCH else "none"


def _presets_table(presets: dict[str, dict[str, Any]]) -> list[str]:
    names = list(next(iter(presets.values())))
    rows = [f"| {name} | " + " | ".join(str(values[name]) for values in presets.values()) + " |" for name in names]
    return ["| setting | " + " | ".join(presets) + " |", "|---" * (len(presets) + 1) + "|", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
