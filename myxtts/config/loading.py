"""YAML in and out, strictly, and the order of precedence: flags over YAML over preset over default.

A file may group settings by part (`training: {multi_gpu: true}`) or give them flat (`multi_gpu: true`).
Types are checked against the dataclasses, so a wrong one is reported here and not deep inside a run.
"""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from myxtts.config.config import PARTS, XTTSConfig, part_of
from myxtts.config.suggest import unknown_name
from myxtts.errors import ConfigError
from myxtts.files import replacing


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Settings of a YAML file as flat keyword arguments of `XTTSConfig`, every name and type checked."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"configuration file {path} does not exist", hint="check the path after --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error}", hint="it must be UTF-8 text") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where is not None else ""
        raise ConfigError(
            f"configuration file {path} is not YAML{line}",
            hint="one setting a line, as in: batch_size: 16",
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"configuration file {path} holds a {type(content).__name__}, not settings",
            hint="one setting a line, as in: batch_size: 16",
        )
    return flatten(content)


def flatten(content: dict[str, Any]) -> dict[str, Any]:
    """Grouped or flat settings as one flat, checked mapping."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if key in PARTS:
            if not isinstance(value, dict):
                raise ConfigError(f"setting {key!r} is {value!r}, must hold settings", hint=f"indent them below {key}:")
            for name, inner in value.items():
                names = [item.name for item in dataclasses.fields(PARTS[key])]
                if name not in names:
                    raise unknown_name(f"setting of {key}", str(name), names)
                flat[name] = _checked(str(name), inner)
        else:
            part_of(str(key))
            flat[str(key)] = _checked(str(key), value)
    return flat


def as_plain_values(config: XTTSConfig) -> dict[str, dict[str, Any]]:
    """Every setting by part, in types that YAML and JSON have."""
    parts: dict[str, dict[str, Any]] = dataclasses.asdict(config)
    return {
        part: {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
        for part, settings in parts.items()
    }


def write_yaml(config: XTTSConfig, path: str | Path) -> None:
    """Whole or not at all: a run that cannot read its own settings cannot go on."""
    with replacing(Path(path)) as part:
        part.write_text(to_yaml_text(as_plain_values(config)), encoding="utf-8")


def to_yaml_text(content: dict[str, Any]) -> str:
    """YAML that people can read, Persian included; escaped only where YAML itself would misread a character."""
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if yaml.safe_load(text) == content:
        return text
    # U+0085 and its like count as line ends when YAML reads them back.
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=False)


def _checked(name: str, value: Any) -> Any:
    hint_type = get_type_hints(PARTS[part_of(name)])[name]
    if isinstance(value, list):
        value = tuple(value)
    if type(value) is int and _accepts(hint_type, 0.5) and not _accepts(hint_type, 1):
        value = float(value)
    if not _accepts(hint_type, value):
        raise ConfigError(
            f"setting {name} is {value!r} ({type(value).__name__}), must be {_describe(hint_type)}",
            hint=f"see --{name.replace('_', '-')} in myxtts train --help",
        )
    return value


def _accepts(hint: Any, value: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_accepts(option, value) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_accepts(get_args(hint)[0], item) for item in value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in get_args(hint))
    if origin is Literal:
        return " or ".join(repr(option) for option in get_args(hint))
    if origin is tuple:
        return "a list of numbers"
    if hint is type(None):
        return "null"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))
