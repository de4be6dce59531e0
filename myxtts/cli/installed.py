"""What the installed extras make possible. Looks for packages, and imports none of them."""

from __future__ import annotations

from importlib.util import find_spec

from myxtts.errors import MissingDependencyError, how_to_install

TRAINING = ("tensorflow", "array_record", "grain")
_EXTRA_OF = {
    **dict.fromkeys((*TRAINING, "keras", "tensorboard"), "cpu"),
    **dict.fromkeys(("starlette", "uvicorn", "multipart", "wyoming"), "serve"),
    **dict.fromkeys(("moonshine_voice", "resemblyzer", "distillmos", "torch"), "eval"),
    "ai_edge_litert": "speak",
    "ray": "cluster",
    "sounddevice": "record",
}
"""Importable package -> the extra that brings it."""
_ALWAYS = frozenset(
    "babel espeakng_loader num2words numpy psutil yaml rich safetensors soundfile soxr tokenizers tyro wordfreq".split()
)
"""Importable packages that every installation has."""


def can_train() -> bool:
    return all(map(find_spec, TRAINING))


def refuse_without(*packages: str) -> None:
    """Raise `MissingDependencyError` before anything is begun that could not be ended."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(package)


def missing_extra(error: ModuleNotFoundError) -> MissingDependencyError | None:
    """The error to show for an import that failed; None for a package that no extra brings: a fault of ours."""
    package = (error.name or "").partition(".")[0]
    if package in _ALWAYS:
        return MissingDependencyError(
            f"this Python has no {package}: MyXTTS is not installed in it",
            hint="source .venv/bin/activate; where there is no .venv yet, first: make setup",
        )
    return _missing(package) if package in _EXTRA_OF else None


def _missing(package: str) -> MissingDependencyError:
    extra = _EXTRA_OF[package]
    or_gpu = "; for NVIDIA GPUs '.[gpu]'" if extra == "cpu" else ""
    return MissingDependencyError(
        f"this needs {package}, which is not installed", hint=f"{how_to_install(extra)}{or_gpu}"
    )
