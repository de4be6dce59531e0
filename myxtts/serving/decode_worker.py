"""`python -m myxtts.serving.decode_worker SECONDS`: decodes one uploaded clip from stdin, with little to lose.

A process of its own, because a decoder that reads what strangers send may crash, hang or swell: its memory, its CPU
time and the files that it may write are limited before it reads a byte. Writes mono float32 samples at 22,050 a second
to stdout; a clip that cannot be used is one line on stderr and exit code 3.
"""

from __future__ import annotations

import io
import resource
import sys

REFUSED = 3
MOST_MEMORY_BYTES = 2 * 2**30
"""Address space, of which numpy's libraries reserve most."""
MOST_CPU_S = 4


def main() -> int:
    import numpy as np

    from myxtts.audio.io import read_audio
    from myxtts.errors import MyXTTSError
    from myxtts.synthesis.references import checked_reference

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read()  # waits here, ready, until there is a clip
    try:
        wave = checked_reference(read_audio(io.BytesIO(data), longest_s=float(sys.argv[1])), "clip")
    except MyXTTSError as error:
        sys.stderr.write(error.problem)
        return REFUSED
    except MemoryError:
        sys.stderr.write("the clip needs more memory than it may have")
        return REFUSED
    sys.stdout.buffer.write(np.asarray(wave, "<f4").tobytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
