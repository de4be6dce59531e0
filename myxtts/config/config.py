"""The whole configuration: its sections, flat construction, and the checks across sections."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myxtts.config.data import DataConfig
from myxtts.config.model import ModelConfig
from myxtts.config.suggest import unknown_name
from myxtts.config.training import TrainingConfig
from myxtts.errors import ConfigError

__all__ = ["SECTIONS", "DataConfig", "ModelConfig", "TrainingConfig", "XTTSConfig", "section_of"]

SECTIONS: dict[str, type[DataConfig] | type[ModelConfig] | type[TrainingConfig]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
}


def section_of(name: str) -> str:
    """The section that has this field; names are unique over all sections, so a field can be given flat."""
    for section, cls in SECTIONS.items():
        if name in {item.name for item in dataclasses.fields(cls)}:
            return section
    known = [item.name for cls in SECTIONS.values() for item in dataclasses.fields(cls)]
    raise unknown_name("setting", name, [*SECTIONS, *known])


@dataclass(frozen=True, init=False)
class XTTSConfig:
    """All settings of a run. A field of a section may be given flat: `XTTSConfig(multi_gpu=True)`."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __init__(
        self,
        data: DataConfig | None = None,
        model: ModelConfig | None = None,
        training: TrainingConfig | None = None,
        **flat: Any,
    ) -> None:
        given: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for name, value in flat.items():
            given[section_of(name)][name] = value
        for section, whole in (("data", data), ("model", model), ("training", training)):
            if whole is not None and given[section]:
                raise ConfigError(
                    f"{', '.join(given[section])} given both flat and inside {section}=",
                    hint=f"put all of {section}'s settings in one place",
                )
            object.__setattr__(self, section, whole if whole is not None else SECTIONS[section](**given[section]))
        self.__post_init__()

    def __post_init__(self) -> None:
        data, training = self.data, self.training
        if training.enable_memory_isolation and data.data_gpu is None:
            raise ConfigError(
                "--enable-memory-isolation was given without --data-gpu and --model-gpu",
                hint="memory limits belong to the dual pipeline: add --data-gpu 0 --model-gpu 1",
            )
        if training.init_from is None and (data.extra_tokens or training.init_parts):
            raise ConfigError(
                f"{'--extra-tokens' if data.extra_tokens else '--init-parts'} was given without --init-from",
                hint="it belongs to fine-tuning: add --init-from VOICE",
            )
        if training.multi_gpu and data.data_gpu is not None:
            raise ConfigError(
                "--multi-gpu was given beside --data-gpu",
                hint="a data GPU and several mirrored model GPUs are --data-gpu 0 --model-gpu 1,2",
            )

    @classmethod
    def from_yaml(cls, path: str | Path) -> XTTSConfig:
        """Read a YAML file strictly: an unknown key or a wrong type is an error that names it."""
        from myxtts.config.loading import read_yaml

        return cls(**read_yaml(path))

    def to_yaml(self, path: str | Path) -> None:
        """Write every setting, resolved; `from_yaml` gives an equal configuration back."""
        from myxtts.config.loading import write_yaml

        write_yaml(self, path)
