"""A process that speaks clips of the demo corpus: `python -m myxtts.data.demo_worker`, the request as JSON on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from myxtts.data.demo_corpus import DemoClip, speak_clip
from myxtts.errors import MyXTTSError


def main() -> int:
    request = json.load(sys.stdin)
    try:
        for clip in request["clips"]:
            speak_clip(DemoClip(**clip), Path(request["wavs"]))
    except MyXTTSError as error:
        sys.stderr.write(f"{error.problem}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
