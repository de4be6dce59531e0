"""Flags of `train` in 0.1 that are settings of a YAML file now: still taken, with a warning, for one version.

They are taken out of the command line before it is parsed, so they are in no help and in no completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

from myxtts.config.config import SECTIONS
from myxtts.config.earlier import NO_LONGER_FLAGS, REMOVED, settings_of
from myxtts.config.loading import from_text, to_yaml_text
from myxtts.config.public import FLAGS, flag
from myxtts.errors import UsageError

NAMES_ELSEWHERE = {
    "--lr": "--learning-rate",
    "--fp16": "--mixed-precision",
    "--bf16": "--mixed-precision",
    "--gpus": "--visible-gpus 0,1 with --multi-gpu, or --data-gpu 0 --model-gpu 1",
    "--resume": "the same command again, which continues by itself (--fresh starts over)",
    "--output": "--run-dir",
    "--output-dir": "--run-dir",
}
"""What other trainers call it, and ours; too unlike for a guess by spelling."""


def split_hidden(argv: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words without hidden flags and their values, and what those set, by the settings' names of now.

    A YAML setting that never was a flag is refused with the way to set it.
    """
    types = {name: hint for section in SECTIONS.values() for name, hint in get_type_hints(section).items()}
    switches = {name for name in NO_LONGER_FLAGS if types.get(name) is bool}
    negated = {flag(f"no_{name}"): name for name in switches}
    hidden = {flag(name): name for name in NO_LONGER_FLAGS}
    refused = {flag(name): name for name in types if name not in FLAGS and name not in NO_LONGER_FLAGS}
    words, rest = list(argv), []
    given: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        spelt, equals, value = word.partition("=")
        spelt = spelt.replace("_", "-") if spelt.startswith("--") else spelt
        if spelt in NAMES_ELSEWHERE:
            raise UsageError(f"there is no flag {spelt}", hint=f"did you mean {NAMES_ELSEWHERE[spelt]}?")
        if spelt in refused:
            raise UsageError(
                f"{spelt} is not a flag: {refused[spelt]} is a setting of a YAML file",
                hint=f"write {refused[spelt]}: VALUE into a file and name it with --config FILE",
            )
        if spelt in negated:
            given[negated[spelt]] = False
        elif spelt not in hidden:
            rest.append(word)
        elif hidden[spelt] in switches:
            given[hidden[spelt]] = True
        elif equals or words:
            given[hidden[spelt]] = value if equals else words.pop(0)
        else:
            raise UsageError(f"{spelt} has no value", hint=f"write {hidden[spelt]}: VALUE into a file for --config")
    given |= {name: int(given[name]) for name in REMOVED if str(given.get(name)).isdigit()}
    settings = settings_of(given)
    return rest, {name: from_text(name, value) if isinstance(value, str) else value for name, value in settings.items()}


def warning_of(settings: dict[str, Any]) -> str:
    """One line: the YAML settings that hidden flags have set."""
    lines = to_yaml_text(settings).strip().replace("\n", ", ")
    return f"warning: flags until the next version only; write these into a YAML file for --config: {lines}"
