"""Holds recorded work against the table of GPU kernels: what a GPU could not run, and what it would run on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorflow.python.framework import op_def_registry

from myxtts.runtime.kernels import Kernel, KernelTable
from tests.recorded_operations import Recorder, Types, called_by, line_of, short, types_of_node

LOWERED = {
    "While": ("Enter", "Exit", "Merge", "Switch", "NextIteration"),
    "If": ("Merge", "Switch"),
}
"""What TensorFlow makes of loops and branches before it runs them, for the type of everything that goes through."""


class Operation(NamedTuple):
    """One operation as it would reach a device."""

    stage: str
    function: str
    device: str
    name: str
    types: Types
    compiled: bool
    """By XLA."""
    pinned: bool = True
    """Whether it must run there. What is only called there, TensorFlow would take to the host and back."""

    def describe(self, line: str) -> str:
        types = ", ".join(f"{attribute}={'/'.join(names)}" for attribute, names in self.types)
        where = "inside XLA" if self.compiled else f"{'pinned to' if self.pinned else 'called on'} {self.device}"
        return f"{self.name}({types}) {where}, stage {self.stage}, {self.function}, {line}"


@dataclass
class Findings:
    """What a recording holds, of the operations on the devices asked about."""

    operations: set[Operation] = field(default_factory=set)
    missing: dict[Operation, set[str]] = field(default_factory=dict)
    """With the lines of ours that ask for them."""
    in_host_memory: dict[str, Counter[str]] = field(default_factory=dict)
    """By stage, operations that write the host's memory though they are on the device, and how many."""
    anywhere: set[str] = field(default_factory=set)
    """Functions and lines with operations that no scope puts on a device: they would run on TensorFlow's default."""

    def combinations(self) -> set[tuple[str, Types]]:
        return {(operation.name, operation.types) for operation in self.operations}

    def report(self) -> list[str]:
        return [own.describe(line) for own, lines in sorted(self.missing.items()) for line in sorted(lines)]


def held_against(
    recorder: Recorder, table: KernelTable, devices: Sequence[str], also: Sequence[tuple[str, str]] = ()
) -> Findings:
    """Every operation that ran, or was traced to run, on one of these devices; `also` are types to put in the place of
    others, where the same code computes in both. What XLA compiles must also run without it."""
    findings = Findings()
    for traced, node in _all(recorder):
        if not traced.device:
            findings.anywhere.add(f"stage {traced.stage}, {traced.function}, {_line(node)}")
        if traced.device not in devices:
            continue
        for operation in {traced, *(traced._replace(types=with_types(traced.types, *pair)) for pair in also)}:
            findings.operations.add(operation)
            kernels = [table.on_gpu(operation.name, dict(operation.types))]
            if operation.compiled:
                kernels.append(table.in_xla(operation.name, dict(operation.types)))
            if None in kernels:
                findings.missing.setdefault(operation, set()).add(_line(node))
            elif operation is traced and _stays_on_the_host(operation.name, kernels[0]):
                findings.in_host_memory.setdefault(operation.stage, Counter())[operation.name] += 1
    return findings


def _line(node: Any) -> str:
    return node if isinstance(node, str) else line_of(node.traceback)


def with_types(types: Types, old: str, new: str) -> Types:
    return tuple((name, tuple(new if one == old else one for one in names)) for name, names in types)


def _stays_on_the_host(operation: str, kernel: Kernel | None) -> bool:
    outputs = {argument.name for argument in op_def_registry.get(operation).output_arg}
    return kernel is not None and bool(outputs) and outputs <= kernel.host_arguments


def _all(recorder: Recorder) -> Iterator[tuple[Operation, Any]]:
    """Operations, each with its line or with the node of a graph that has one."""
    for own in recorder.eager:
        yield Operation(own.stage, "eagerly", own.device, own.name, own.types, False), own.line
    for stage, device, name in sorted({(call.stage, call.device, call.function) for call in recorder.calls}):
        seen: set[tuple[str, str, bool]] = set()
        for own, op in _of_function(recorder, name, device, False, seen):
            yield own._replace(stage=stage, function=readable(name)), op


def _of_function(
    recorder: Recorder, name: str, device: str, compiled: bool, seen: set[tuple[str, str, bool]]
) -> Iterator[tuple[Operation, Any]]:
    function = recorder.functions[name]
    compiled = compiled or function.compiled
    if (name, device, compiled) in seen:
        return
    seen.add((name, device, compiled))
    arguments = {tensor.op.name for tensor in function.graph.inputs}
    for op in function.graph.get_operations():
        if op.name in arguments:
            continue
        node = op.node_def
        # XLA heeds no device inside of what it compiles.
        own_device = "" if compiled else short(node.device)
        placed = own_device or device
        inner = called_by(node)
        if not (inner and compiled):
            yield Operation("", "", placed, node.op, types_of_node(node), compiled, bool(own_device)), op
        for kind in () if compiled else LOWERED.get(node.op.removeprefix("Stateless"), ()):
            for dtype in _types_in(op.inputs):
                yield Operation("", "", placed, kind, (("T", (dtype,)),), False, bool(own_device)), op
        for called in inner:
            yield from _of_function(recorder, called, placed, compiled, seen)


def _types_in(tensors: Iterable[Any]) -> list[str]:
    return sorted({tensor.dtype.name for tensor in tensors})


def readable(name: str) -> str:
    """`log_mel` of `__inference_log_mel_1234`."""
    return name.removeprefix("__inference_").removeprefix("__forward_").rstrip("0123456789").rstrip("_")


def copies_inside(recorder: Recorder, caller: str, devices: Sequence[str]) -> dict[str, dict[str, int]]:
    """Copies between host and devices that one of our functions makes, by stage, and by direction and line."""
    found: dict[str, dict[str, int]] = {}
    for copy, count in recorder.copies.items():
        if caller in copy.callers and (copy.device in devices or not copy.device):
            way = "to the host" if copy.to_host else f"to {copy.device or 'the default device'}"
            own = found.setdefault(copy.stage, {})
            own[f"{way}, {copy.line}"] = own.get(f"{way}, {copy.line}", 0) + count
    return found
