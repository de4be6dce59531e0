"""What a power cut may leave: every state of a folder that the recorded writes, syncs and renames allow.

The weakest file system is assumed: of what was not synced, any part may be on the disk and any other not, in whatever
order it was done. A write is there once its file was synced, a name once its folder was; a rename is there whole or not
at all. `python -m tests.crash` records what writes our files, and reads every state as the next command would.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST_COMBINED = 9
"""Operations in flight of which every combination is tried; of more, the extremes and some hundred combinations."""
SAMPLED = 150


@dataclass(frozen=True)
class Operation:
    """A line of the record."""

    kind: str
    path: str
    other: str
    offset: int
    data: bytes


def read_record(log: Path) -> list[Operation]:
    content, place, found = log.read_bytes(), 0, []
    while place < len(content):
        end = content.index(b"\n", place)
        kind, path, other, offset, size = content[place:end].decode().split("\t")
        place = end + 1 + int(size)
        found.append(Operation(kind, path, other, int(offset), content[end + 1 : place]))
    return found


@dataclass
class Node:
    """A file or a folder, whatever its names."""

    is_folder: bool
    effects: list[Effect] = field(default_factory=list)


@dataclass(eq=False)
class Effect:
    """One change that is on the disk or not: of a file's bytes, or of names in folders."""

    node: Node
    offset: int = 0
    data: bytes = b""
    cut: bool = False
    names: list[tuple[Node, str, Node | None]] = field(default_factory=list)
    synced: bool = False


class Disk:
    """The operations as they were done, and what may be on the disk after each."""

    def __init__(self, root: Path) -> None:
        self._root = Node(True)
        self._prefix = str(root)
        self._view: dict[Node | int, dict[str, Node]] = {id(self._root): {}}
        self._by_number: dict[str, tuple[Node, Node, str]] = {}
        self.effects: list[Effect] = []

    def do(self, operation: Operation) -> None:
        if operation.kind == "exchange":
            (folder, name), (to_folder, to_name) = self._split(operation.path), self._split(operation.other)
            node, other = self._view[id(folder)][name], self._view[id(to_folder)][to_name]
            self._enter([(folder, name, other), (to_folder, to_name, node)], node)
            return
        if operation.kind == "rename":
            self._rename(*self._split(operation.path), *self._split(operation.other))
            return
        folder, name = self._split(operation.path)
        if operation.kind in ("create", "folder"):
            node = Node(operation.kind == "folder")
            self._view.setdefault(id(node), {})
            self._enter([(folder, name, node)], node)
            if operation.other:
                self._by_number[operation.other] = (node, folder, name)
        elif operation.kind == "remove":
            self._enter([(folder, name, None)], self._view[id(folder)][name])
        elif operation.kind == "sync":
            self._sync(self._found(operation, folder, name))
        else:
            node = self._found(operation, folder, name)
            effect = Effect(node, operation.offset, operation.data, cut=operation.kind == "cut")
            node.effects.append(effect)
            self.effects.append(effect)

    def _found(self, operation: Operation, folder: Node, name: str) -> Node:
        """The file of that name; one that a library renamed unseen is known by its number."""
        known = self._by_number.get(operation.other)
        if known is not None and known[1:] != (folder, name) and self._view[id(known[1])].get(known[2]) is known[0]:
            self._rename(known[1], known[2], folder, name)
        return self._view[id(folder)][name] if name else folder

    def _rename(self, folder: Node, name: str, to_folder: Node, to_name: str) -> None:
        node = self._view[id(folder)][name]
        self._enter([(folder, name, None), (to_folder, to_name, node)], node)
        for number, known in self._by_number.items():
            if known[0] is node:
                self._by_number[number] = (node, to_folder, to_name)

    def _split(self, path: str) -> tuple[Node, str]:
        inner = path.removeprefix(self._prefix).strip("/")
        *folders, name = inner.split("/")
        node = self._root
        for one in folders:
            node = self._view[id(node)][one]
        return node, name

    def _enter(self, names: list[tuple[Node, str, Node | None]], node: Node) -> None:
        effect = Effect(node, names=names)
        for folder, name, entered in names:
            if entered is None:
                self._view[id(folder)].pop(name, None)
            else:
                self._view[id(folder)][name] = entered
            folder.effects.append(effect)
        self.effects.append(effect)

    @staticmethod
    def _sync(node: Node) -> None:
        for effect in node.effects:
            effect.synced = True

    def tree(self, lost: frozenset[Effect] = frozenset(), torn: Effect | None = None) -> dict[str, bytes | None]:
        """Paths to contents (None: a folder), without what was lost, and with half of a write that was torn."""
        entries: dict[int, dict[str, Node]] = {}
        contents: dict[int, bytearray] = {}
        for effect in self.effects:
            if effect in lost:
                continue
            if effect.names:
                for folder, name, node in effect.names:
                    known = entries.setdefault(id(folder), {})
                    if node is None:
                        known.pop(name, None)
                    else:
                        known[name] = node
                continue
            content = contents.setdefault(id(effect.node), bytearray())
            if effect.cut:
                del content[effect.offset :]
                content.extend(bytes(effect.offset - len(content)))
            else:
                content.extend(bytes(max(0, effect.offset - len(content))))
                data = effect.data[: len(effect.data) // 2] if effect is torn else effect.data
                content[effect.offset : effect.offset + len(data)] = data
        found: dict[str, bytes | None] = {}
        waiting = [("", self._root)]
        while waiting:
            where, folder = waiting.pop()
            for name, node in entries.get(id(folder), {}).items():
                path = f"{where}/{name}".lstrip("/")
                found[path] = None if node.is_folder else bytes(contents.get(id(node), b""))
                if node.is_folder:
                    waiting.append((path, node))
        return found

    def possible(self, drawn: random.Random) -> Iterator[dict[str, bytes | None]]:
        """Every tree that a power cut may leave now."""
        pending = [effect for effect in self.effects if not effect.synced]
        for lost in _combinations(pending, drawn):
            yield self.tree(frozenset(lost))
        for effect in pending:
            if effect.data:
                yield self.tree(torn=effect)


def _combinations(pending: list[Effect], drawn: random.Random) -> Iterator[list[Effect]]:
    if len(pending) <= MOST_COMBINED:
        for size in range(len(pending) + 1):
            yield from map(list, itertools.combinations(pending, size))
        return
    yield []
    for place in range(len(pending)):
        yield pending[place:]  # as if done in order
        yield [pending[place]]
        yield pending[:place] + pending[place + 1 :]
    for _ in range(SAMPLED):
        yield [effect for effect in pending if drawn.random() < 0.5]


def digest_of(tree: dict[str, bytes | None]) -> bytes:
    digest = hashlib.sha256()
    for path, content in sorted(tree.items()):
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.digest()


def write_tree(folder: Path, tree: dict[str, bytes | None]) -> None:
    for path, content in sorted(tree.items()):
        target = folder / path
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def read_tree(folder: Path) -> dict[str, bytes | None]:
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in found}
