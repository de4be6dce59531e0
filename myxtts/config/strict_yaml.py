"""Reading YAML that anybody may have written: plain settings, each once, and nothing that grows when it is read.

A file comes with a voice from anywhere. Aliases are refused, for 300 bytes of them stand for gigabytes; so are deep
nesting, which ends Python's stack, and files far larger than settings are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from myxtts.errors import ConfigError

MOST_BYTES = 32 * 1024
"""All settings that there are take 1,700; PyYAML reads 32 KiB in less than a second."""
MOST_LEVELS = 8
_SHOWN = 80


def read_strict_yaml(path: Path) -> Any:
    """What the file holds, as plain values; anything that is wrong with it is a `ConfigError`."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _RefusedError(f"has more than {MOST_BYTES} bytes")
        # A SafeLoader that refuses what it would read over; nothing else of it is changed.
        return yaml.load(content.decode("utf-8"), Loader=_StrictLoader)
    except FileNotFoundError:
        raise ConfigError(f"configuration file {path} does not exist", hint="check the path after --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error}", hint="it must be UTF-8 text") from None
    except _TwiceError as error:
        name = error.name if error.name.isidentifier() else shown(error.name)
        raise ConfigError(
            f"setting {name} stands twice in {path}, at line {error.line}", hint="remove one of the two"
        ) from None
    except _RefusedError as error:
        raise ConfigError(
            f"configuration file {path} {error}", hint="one setting a line, as in: batch_size: 16"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that there is not
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where is not None else ""
        raise ConfigError(
            f"configuration file {path} is not YAML{line}",
            hint="one setting a line, as in: batch_size: 16",
        ) from None


def shown(value: Any) -> str:
    """A value of a file as an error may print it: on one line, and not whole where it is long."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _TwiceError(yaml.YAMLError):
    """A key that stands twice in one mapping, of which YAML libraries take the last."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(name, line)
        self.name, self.line = name, line


class _RefusedError(yaml.YAMLError):
    """YAML that settings have no use for."""


class _StrictLoader(yaml.SafeLoader):
    """Each key once, no aliases, few levels."""

    _levels = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise _RefusedError(f"has an alias at line {line}, and must give every setting itself")
        if self._levels == MOST_LEVELS:
            raise _RefusedError(f"is nested more than {MOST_LEVELS} levels deep at line {line}")
        self._levels += 1
        node = super().compose_node(parent, index)
        self._levels -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _TwiceError(key.value, key.start_mark.line + 1)
                seen.add(key.value)
        return node
