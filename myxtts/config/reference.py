"""The page of all settings, made from the dataclasses: a field's docstring is its help everywhere."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from typing import Any

from myxtts.config.config import SECTIONS
from myxtts.config.presets import FROM_PRESET, MODEL_SIZES, OPTIMIZATION_LEVELS


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
    lines = [
        "# Settings",
        "",
        "Every setting is a flag of `myxtts train` (`--batch-size 16`), a line of a YAML file for `--config`",
        "(`batch_size: 16`, alone or below its part), and a field of `XTTSConfig`. Flags win over YAML, YAML over",
        "presets, presets over defaults. This page is written by `python -m tools.write_settings`.",
    ]
    for part, cls in SECTIONS.items():
        texts = field_help(cls)
        lines += ["", f"## {part}", "", f"{cls.__doc__}", "", "| flag | default | what |", "|---|---|---|"]
        for item in dataclasses.fields(cls):
            flag = f"`--{item.name.replace('_', '-')}`"
            lines.append(f"| {flag} | {_default(item)} | {_cell(texts[item.name])} |")
    lines += ["", "## Presets", "", "`--model-size`:", "", *_table(MODEL_SIZES)]
    lines += ["", "`--optimization-level`:", "", *_table(OPTIMIZATION_LEVELS)]
    return "\n".join(lines) + "\n"


def _default(item: Any) -> str:
    preset = any(item.name in values for values in (*MODEL_SIZES.values(), *OPTIMIZATION_LEVELS.values()))
    if item.default is FROM_PRESET:
        return "preset" if preset else "none"
    return f"`{item.default}`"


def _table(presets: dict[str, dict[str, Any]]) -> list[str]:
    names = list(next(iter(presets.values())))
    rows = [f"| {name} | " + " | ".join(str(values[name]) for values in presets.values()) + " |" for name in names]
    return ["| setting | " + " | ".join(presets) + " |", "|---" * (len(presets) + 1) + "|", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
