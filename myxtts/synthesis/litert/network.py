"""One LiteRT file as a function of arrays. Refuses a file that is no network, or whose shapes are not the expected.

Sizes that are free in the file are those of each call's arrays: changing them costs some ten microseconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import CheckpointError, DamagedError, MissingDependencyError, SynthesisError, how_to_install
from myxtts.synthesis.litert.layout import Shape, Sizes

Array = NDArray[Any]
_said = threading.Event()
"""Whether LiteRT has said already what it says once in a process."""


class Network:
    """Inputs and outputs in the order in which the exporter named them. Threads may share one: they take turns."""

    def __init__(self, path: Path, sizes: Sizes, *, threads: int = 1) -> None:
        """Open the file; raises `DamagedError` where it is not one with these inputs and outputs."""
        self._interpreter = _opened(path, threads)
        self._inputs = [about["index"] for about in _checked(path, self._interpreter.get_input_details(), sizes.inputs)]
        self._outputs = [
            about["index"] for about in _checked(path, self._interpreter.get_output_details(), sizes.outputs)
        ]
        self._sizes = sizes
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._turn = threading.Lock()

    def __call__(self, *arrays: Array) -> list[Array]:
        """What the network makes of float32 or int32 arrays; its own copies."""
        with self._turn:
            return self._run(arrays)

    def _run(self, arrays: Sequence[Array]) -> list[Array]:
        shapes = tuple(array.shape for array in arrays)
        interpreter = self._interpreter
        if shapes != self._shapes:
            self._refuse(shapes)
            for index, shape in zip(self._inputs, shapes, strict=True):
                interpreter.resize_tensor_input(index, shape)
            interpreter.allocate_tensors()
            self._shapes = shapes
        for index, array in zip(self._inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in self._outputs]

    def _refuse(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise where an array has not the sizes that the file fixes."""
        for shape, wanted in zip(shapes, self._sizes.inputs, strict=True):
            pairs = zip(shape, wanted, strict=False)
            if len(shape) != len(wanted) or any(own not in (None, size) for size, own in pairs):
                raise SynthesisError(
                    f"a network of the voice takes {wanted} and got {shape} (None is any size)",
                    hint="saved latents must be of this voice: make them again with --save-voice",
                )


def _opened(path: Path, threads: int) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise MissingDependencyError(
            f"speaking without TensorFlow needs ai-edge-litert: {error}", hint=how_to_install("speak")
        ) from error
    try:
        with _quietly():
            interpreter = Interpreter(str(path), num_threads=threads)
            if not _said.is_set():
                interpreter.allocate_tensors()
                _said.set()
            return interpreter
    except (ValueError, RuntimeError) as error:
        raise DamagedError(f"{path} is no LiteRT file: {error}", hint="copy the voice folder again") from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the line that LiteRT writes to standard error when a process first prepares a network."""
    if _said.is_set():
        yield
        return
    try:
        kept = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _checked(path: Path, found: Sequence[dict[str, Any]], expected: Sequence[Shape]) -> list[dict[str, Any]]:
    """The tensors by name; all have the expected sizes, and are free where those are."""
    by_name = sorted(found, key=lambda about: str(about["name"]))
    shapes = [tuple(int(size) for size in about["shape_signature"]) for about in by_name]
    wanted = [tuple(-1 if size is None else size for size in shape) for shape in expected]
    if shapes != wanted or any(about["dtype"] not in (np.float32, np.int32) for about in by_name):
        raise CheckpointError(
            f"{path} has the sizes {shapes}, the voice's config.yaml asks for {wanted}",
            hint="export the voice again; the two are not of one voice",
        )
    return by_name
