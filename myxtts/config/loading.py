"""YAML in and out, strictly: every name and type is checked.

A file may group settings by section (`training: {multi_gpu: true}`) or give them flat (`multi_gpu: true`), each once.
Types are checked against the dataclasses, so a wrong one is reported here and not deep inside a run.
"""

from __future__ import annotations

import dataclasses
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from myxtts.config import earlier
from myxtts.config.config import SECTIONS, XTTSConfig, section_of
from myxtts.config.public import FLAGS, flag
from myxtts.config.strict_yaml import read_strict_yaml, shown
from myxtts.config.suggest import unknown_name
from myxtts.errors import ConfigError
from myxtts.files import replacing

_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
"""Numbers such as 1e-4, which PyYAML takes for text: it wants 1.0e-4."""


_NO_NUMBER = 2**63
"""No setting is as large, and neither NumPy nor TensorFlow has room for it."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Settings of a YAML file as flat keyword arguments of `XTTSConfig`, every name and type checked."""
    path = Path(path)
    content = read_strict_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"configuration file {path} holds a {type(content).__name__}, not settings",
            hint="one setting a line, as in: batch_size: 16",
        )
    return _flatten(content, path)


def _flatten(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Grouped or flat settings as one flat, checked mapping."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        for name, inner in _settings_of(key if isinstance(key, str) else shown(key), value):
            if name in flat:
                raise ConfigError(
                    f"setting {name} stands twice in {path}: by itself and below {section_of(name)}:",
                    hint="remove one of the two",
                )
            flat[name] = _checked(name, inner)
    return flat


def _settings_of(key: str, value: Any) -> list[tuple[str, Any]]:
    """One setting, or all of a section."""
    if key not in SECTIONS:
        return list(earlier.settings_of({key: value}).items())
    if not isinstance(value, dict):
        raise ConfigError(f"setting {key!r} is {shown(value)}, must hold settings", hint=f"indent them below {key}:")
    names = [item.name for item in dataclasses.fields(SECTIONS[key])]
    settings = earlier.settings_of(value)
    for name in settings:
        if name not in names:
            raise unknown_name(f"setting of {key}", name if isinstance(name, str) else shown(name), names)
    return list(settings.items())


def as_plain_values(config: XTTSConfig) -> dict[str, dict[str, Any]]:
    """Every setting by section, in types that YAML and JSON have."""
    sections: dict[str, dict[str, Any]] = dataclasses.asdict(config)
    return {
        section: {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
        for section, settings in sections.items()
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


def from_text(name: str, text: str) -> Any:
    """The value of a setting as a word of the command line gives it, checked."""
    hint_type = get_type_hints(SECTIONS[section_of(name)])[name]
    if _accepts(hint_type, text):
        return text
    if text == "None":
        return _checked(name, None)
    try:
        return _checked(name, yaml.safe_load(text))
    except (yaml.YAMLError, ValueError):  # ValueError: a date or a number that there is not
        return _checked(name, text)  # raises: it is not of the setting's type


def _checked(name: str, value: Any) -> Any:
    hint_type = get_type_hints(SECTIONS[section_of(name)])[name]
    if isinstance(value, list):
        value = tuple(value)
    if type(value) is int and abs(value) >= _NO_NUMBER:
        raise ConfigError(f"setting {name} is {shown(value)}, must be a number", hint="see myxtts train --help")
    if _accepts(hint_type, 0.5) and (type(value) is int or (type(value) is str and _EXPONENT.fullmatch(value))):
        value = float(value)
    if name == "visible_gpus" and type(value) is int:
        value = str(value)  # One GPU of a list that is written with commas.
    if not _accepts(hint_type, value):
        raise ConfigError(
            f"setting {name} is {shown(value)} ({type(value).__name__}), must be {_describe(hint_type)}",
            hint=f"see {flag(name)} in myxtts train --help" if name in FLAGS else f"see {name} in docs/settings.md",
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
