"""Put the base voice's weights into the package: 16 bits for fine-tuning, and LiteRT files in 8 bits for speaking.

    python -m recipes.base.publish RUN

Of its speakers it keeps the teacher's own, which are no blends, with a few seconds each.
"""

from __future__ import annotations

import re
import shutil
import sys

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.synthesis.litert.export import export_litert
from myxtts.synthesis.opening import KEPT_EXPORT
from myxtts.synthesis.references import SPEAKERS_FILE, Speaker, load_speakers, save_speakers
from myxtts.synthesis.voice import BASE, BUILT_IN, export_voice

KEPT = re.compile(r"[ab][fm]_[a-z]+")
SECONDS = 4.0


def main(run: str) -> None:
    out = BUILT_IN / BASE
    shutil.rmtree(out, ignore_errors=True)
    export_voice(run, out, half=True)
    kept = [
        Speaker(one.name, "en", one.wave[: int(SECONDS * SAMPLE_RATE)])
        for one in load_speakers(out).values()
        if KEPT.fullmatch(one.name)
    ]
    save_speakers(out, kept)
    export_litert(out, out / KEPT_EXPORT, weights="int8")
    # The export's own copy of the speakers is that of the folder around it.
    for path in sorted(out.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            print(f"{path.relative_to(out)}  {path.stat().st_size / 1e6:.2f} MB")
    print(f"{sum(path.stat().st_size for path in out.rglob('*')) / 1e6:.1f} MB, {len(kept)} speakers, {SPEAKERS_FILE}")


if __name__ == "__main__":
    main(*sys.argv[1:])
