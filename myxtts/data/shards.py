"""Shards: ArrayRecord files that appear whole or not at all, and random access over many of them.

ArrayRecord reports a missing, foreign or cut file only when a record is read, and then as `RuntimeError`; here each
becomes a `DataError` that names the file. Riegeli, below it, keeps a hash of every chunk and checks it on each read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from myxtts.errors import DataError
from myxtts.files import replacing

# PCM does not compress (8 % with zstd for four times the CPU), and one record a group is what random access wants.
_WRITER_OPTIONS = "group_size:1,uncompressed"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_OPEN_FILES = 256


class ShardWriteError(Exception):
    """The file system did not take the shard; the message has its reason."""


def write_shard(path: Path, records: Iterable[bytes]) -> int:
    """Write a shard under a temporary name, force it to the disk, then give it its name; returns its size."""
    try:
        with replacing(path) as temporary:
            writer = ArrayRecordWriter(str(temporary), _WRITER_OPTIONS)
            for record in records:
                writer.write(record)
            writer.close()
        return path.stat().st_size
    except (RuntimeError, OSError) as error:
        raise ShardWriteError(str(error)) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that it is there entirely or not at all, even after a power cut."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ShardWriteError(f"{path}: {error.strerror or error}") from error


class ShardReader:
    """Records of several shards by (shard, position); keeps a bounded number of files open; safe for threads."""

    def __init__(self, paths: Sequence[Path], still_same: Callable[[], None]) -> None:
        """`still_same` raises where the folder is another by now; asked when a file that was just opened is read."""
        self._paths = list(paths)
        self._still_same = still_same
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._known: set[int] = set()
        self._lock = threading.Lock()

    def read(self, shard: int, position: int) -> bytes:
        reader = self._reader(shard)
        try:
            # One record a call: a list of them goes through a thread pool, which costs three times the CPU.
            data: bytes = reader.read([position])[0]
        except (RuntimeError, IndexError, ValueError) as error:
            raise self.damaged(shard, position, str(error)) from error
        if shard not in self._known:
            self._still_same()
            self._known.add(shard)
        return data

    def damaged(self, shard: int, position: int, how: str) -> DataError:
        """The error for a record that cannot be used, also where its reader is the one to find out."""
        return DataError(
            f"{self._paths[shard]}, record {position}, is damaged: {how[:200]}",
            hint=f"remove {self._paths[shard].parent} and run the same command again: it prepares the corpus anew",
        )

    def _reader(self, shard: int) -> Any:
        with self._lock:
            reader = self._open.get(shard)
            if reader is None:
                reader = self._open[shard] = ArrayRecordReader(str(self._paths[shard]), _READER_OPTIONS)
                if len(self._open) > _OPEN_FILES:
                    # Not closed here: another thread may be reading from it; it is closed with its last reference.
                    self._known.discard(self._open.popitem(last=False)[0])
            self._open.move_to_end(shard)
            return reader
