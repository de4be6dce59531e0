"""Watches TensorFlow work: every operation that runs eagerly, every function that is called, every copy to the host.

Functions are kept as the graphs that they were traced to, so that what they are made of can be looked at later, with
the line of ours that asked for each operation. A recorder that is `dry` runs no function, nor any operation in 16 bits,
which can end the process on a CPU: ones of the right types and shapes come out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import core, execute
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import constant_op, op_def_library, op_def_registry, ops

ROOT = Path(__file__).parent.parent
OURS = (str(ROOT / "myxtts"), str(ROOT / "tests"))
UNKNOWN_ROWS, UNKNOWN_SIDE = 2, 4
"""Of the tensors that a dry function gives, where its graph leaves the first axis open, or another."""
SIXTEEN_BITS = {"float16", "bfloat16"}

STRINGS = {"bad_indices_policy"}
"""Attributes that choose among kernels without being types."""
OF_SHAPES = {"Shape", "ShapeN", "Size", "Rank"}
"""Operations that look at no number of a tensor."""

Types = tuple[tuple[str, tuple[str, ...]], ...]
"""Attributes of an operation that kernels are chosen by, with their values."""


class EagerOperation(NamedTuple):
    stage: str
    device: str
    name: str
    types: Types
    line: str


class Call(NamedTuple):
    """A function that was called eagerly."""

    stage: str
    device: str
    function: str
    line: str


class Copy(NamedTuple):
    """A tensor that the host fetched from a device, or made and sent to one."""

    stage: str
    device: str
    to_host: bool
    line: str
    callers: tuple[str, ...]
    """Functions of ours that it happened in, the innermost first."""


@dataclass
class Function:
    """What a function was traced to."""

    graph: Any
    compiled: bool
    """Whether XLA has to compile it."""


@dataclass
class Recorder:
    """Use it as a context manager, once, before any function is traced; `stage` labels what is seen from then on."""

    dry: bool = False
    stage: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    eager: set[EagerOperation] = field(default_factory=set)
    calls: set[Call] = field(default_factory=set)
    copies: Counter[Copy] = field(default_factory=Counter)

    @contextmanager
    def watching(self) -> Iterator[Recorder]:
        with ExitStack() as stack:
            for owner, name, ours in (
                (pywrap_tfe, "TFE_Py_FastPathExecute", _no_fast_path),
                (execute, "execute", self._execute),
                (atomic_function, "from_func_graph", self._from_func_graph),
                (constant_op, "convert_to_eager_tensor", self._constant),
                (ops._EagerTensorBase, "_numpy", self._fetching()),
            ):
                setattr(self, f"_original_{name}", getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, ours))
            yield self

    # What TensorFlow calls instead of its own

    def _from_func_graph(self, name: Any, graph: Any, attrs: Any, *rest: Any, **named: Any) -> Any:
        made = self._original_from_func_graph(name, graph, attrs, *rest, **named)
        compiled = "_XlaMustCompile" in (attrs or {}) and bool(getattr(attrs["_XlaMustCompile"], "b", True))
        self.functions[_text(made.name)] = Function(graph, compiled)
        return made

    def _execute(self, op_name: Any, num_outputs: int, inputs: Any, attrs: Any, ctx: Any, name: Any = None) -> Any:
        called = _text(op_name)
        device = short(ctx.device_name) or _of_resource(inputs)
        if called in self.functions:
            self.calls.add(Call(self.stage, device, called, line_of(sys._getframe(1))))
            if self.dry:
                return [_ones(output.dtype, output.shape, device) for output in self.functions[called].graph.outputs]
        else:
            types = _types_of(called, attrs)
            self.eager.add(EagerOperation(self.stage, device, called, types, line_of(sys._getframe(1))))
            if self.dry and _in_sixteen_bits(types) and called not in OF_SHAPES:
                outputs = _inferred(called, inputs, attrs)
                return [_ones(dtype, shape, device) for dtype, shape in outputs]
        return self._original_execute(op_name, num_outputs, inputs, attrs, ctx, name)

    def _constant(self, value: Any, ctx: Any, dtype: Any = None) -> Any:
        made = self._original_convert_to_eager_tensor(value, ctx, dtype)
        if not isinstance(value, ops.EagerTensor):
            self._note_copy(made, short(ctx.device_name), to_host=False)
        return made

    def _fetching(self) -> Any:
        recorder = self

        def _numpy(tensor: Any) -> Any:
            recorder._note_copy(tensor, short(tensor.backing_device), to_host=True)
            return recorder._original__numpy(tensor)

        return _numpy

    def _note_copy(self, tensor: Any, device: str, *, to_host: bool) -> None:
        # Integers of 32 bits that a GPU's operations make or read are in the host's memory already.
        if tensor.dtype != tf.int32:
            frame = sys._getframe(2)
            self.copies[Copy(self.stage, device, to_host, line_of(frame), tuple(_callers(frame)))] += 1


def called_by(node: Any) -> list[str]:
    """Functions that a node of a graph calls."""
    named = []
    for value in node.attr.values():
        named += [value.func.name, *(function.name for function in value.list.func)]
    return [name for name in named if name]


def types_of_node(node: Any) -> Types:
    return _sorted_types(
        (name, _names_in([value.type] if value.type else value.list.type, [value.s] if name in STRINGS else []))
        for name, value in node.attr.items()
        if not name.startswith("_")
    )


def _types_of(op_name: str, attrs: Any) -> Types:
    """Of attributes as the eager runtime gets them, one after the other, types as numbers."""
    given = dict(zip(map(_text, attrs[::2]), attrs[1::2], strict=True)) if attrs else {}
    kinds = {attr.name: attr.type for attr in op_def_registry.get(op_name).attr}
    read = []
    for name, value in given.items():
        kind = kinds.get(name)
        if kind == "type":
            read.append((name, _names_in([value], [])))
        elif kind == "list(type)":
            read.append((name, _names_in(value, [])))
        elif name in STRINGS:
            read.append((name, _names_in([], [value])))
    return _sorted_types(read)


def _sorted_types(named: Iterable[tuple[str, tuple[str, ...]]]) -> Types:
    return tuple(sorted((name, names) for name, names in named if names))


def _names_in(types: Iterable[Any], strings: Iterable[Any]) -> tuple[str, ...]:
    return (*(tf.as_dtype(number).name for number in types), *(_text(word) for word in strings))


def _in_sixteen_bits(types: Types) -> bool:
    return any(SIXTEEN_BITS & set(names) for _, names in types)


def line_of(place: FrameType | Any) -> str:
    """The innermost line of ours: of a frame, or of the traceback of an operation in a graph."""
    if isinstance(place, FrameType):
        frame: FrameType | None = place
        while frame is not None:
            if frame.f_code.co_filename.startswith(OURS):
                return f"{_inside(frame.f_code.co_filename)}:{frame.f_lineno}"
            frame = frame.f_back
        return "elsewhere"
    for own in reversed(list(place or ())):
        if own.filename.startswith(OURS):
            return f"{_inside(own.filename)}:{own.lineno}"
    return "elsewhere"


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            yield frame.f_code.co_name
        frame = frame.f_back


def _inside(filename: str) -> str:
    return str(Path(filename).relative_to(ROOT))


def short(device: str | None) -> str:
    """`/CPU:1` of any longer form; nothing of none."""
    found = (device or "").lower().partition("device:")[2] or (device or "").lower().strip("/")
    return f"/{found.upper()}" if found else ""


def _of_resource(inputs: Iterable[Any]) -> str:
    """An operation on a variable runs where that is, whatever the scope."""
    return next((short(x.device) for x in inputs if getattr(x, "dtype", None) == tf.resource), "")


def _ones(dtype: Any, shape: Any, device: str) -> Any:
    open_sides = [UNKNOWN_ROWS, *[UNKNOWN_SIDE] * 8]
    sides = [one if side is None else side for side, one in zip(shape, open_sides, strict=False)]
    where = next(d.name for d in tf.config.list_logical_devices("CPU") if short(d.name) == (device or "/CPU:0"))
    full = f"/job:localhost/replica:0/task:0{where}" if not where.startswith("/job") else where
    # Nothing is true: what waits for speech to end would have nothing to say if it had ended already.
    made = np.full(sides, dtype != tf.bool, dtype.as_numpy_dtype)
    return ops.EagerTensor(made, full, dtype.as_datatype_enum)


def _inferred(op_name: str, inputs: Any, attrs: Any) -> list[tuple[Any, Any]]:
    """Types and shapes of what an operation would give, found by putting it into a graph instead of running it."""
    definition = op_def_registry.get(op_name)
    given = dict(zip(map(_text, attrs[::2]), attrs[1::2], strict=True))
    remaining, named = iter(inputs), {}
    with tf.Graph().as_default():
        for argument in definition.input_arg:
            count = given[argument.number_attr] if argument.number_attr else None
            if argument.type_list_attr:
                count = len(given[argument.type_list_attr])
            taken = [_symbol(next(remaining)) for _ in range(1 if count is None else count)]
            named[argument.name] = taken[0] if count is None else taken
        known = {attr.name for attr in definition.attr if attr.type not in ("type", "list(type)")}
        taking = {attr.name for attr in definition.attr}
        inferred_types = {
            a for arg in definition.input_arg for a in (arg.type_attr, arg.type_list_attr, arg.number_attr)
        }
        extra = {
            name: (tf.as_dtype(value) if name not in known else value)
            for name, value in given.items()
            if name in taking and name not in inferred_types
        }
        made = op_def_library.apply_op(op_name, **named, **extra)
        flat = tf.nest.flatten(made)
        return [(tensor.dtype, tensor.shape) for tensor in flat if isinstance(tensor, tf.Tensor)]


def _symbol(tensor: Any) -> Any:
    if tensor.dtype.is_integer or tensor.dtype.is_bool:
        return tf.constant(tensor.numpy())
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape)


def _no_fast_path(*arguments: Any) -> Any:
    raise core._FallbackException("watched")


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
