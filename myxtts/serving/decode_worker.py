"""Decodes one uploaded clip in a process with little to lose.

A decoder that reads what strangers send may crash, hang or swell: memory, CPU time and the files that it may write are
limited before it reads a byte. The process is forked from one that has imported this module and nothing else, so that
it costs milliseconds and shares nothing with the server.
"""

from __future__ import annotations

import io
import resource
from multiprocessing.connection import Connection

import numpy as np

from myxtts.audio.io import read_audio
from myxtts.errors import MyXTTSError
from myxtts.synthesis.references import checked_reference

MOST_MEMORY_BYTES = 2 * 2**30
"""Address space, of which numpy's libraries reserve most."""
MOST_CPU_S = 4
CLIP, REFUSED = b"clip:", b"no: "


def decode_one(connection: Connection, longest_s: float) -> None:
    """Read a file's bytes, answer with float32 samples at 22,050 a second, or with why it cannot be used."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = connection.recv_bytes()
    try:
        wave = checked_reference(read_audio(io.BytesIO(data), longest_s=longest_s), "clip")
    except MyXTTSError as error:
        connection.send_bytes(REFUSED + error.problem.encode("utf-8", "replace"))
    except MemoryError:
        connection.send_bytes(REFUSED + b"it needs more memory than it may have")
    else:
        connection.send_bytes(CLIP + np.asarray(wave, "<f4").tobytes())
