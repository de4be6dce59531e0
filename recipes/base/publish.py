"""Put the base voice's weights into the package: 16 bits for fine-tuning, and LiteRT files in 8 bits for speaking.

    python -m recipes.base.publish RUN

Of its speakers it keeps the teacher's own, which are no blends, with a few seconds each.
"""

from __future__ import annotations

import re
import shutil
import sys

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.models.weights import read_arrays, save_arrays
from myxtts.synthesis.litert.export import export_litert
from myxtts.synthesis.opening import KEPT_EXPORT
from myxtts.synthesis.references import SPEAKERS_FILE, Speaker, load_speakers, save_speakers
from myxtts.synthesis.voice import ALIGNER_FILE, BASE, BUILT_IN, export_voice, half_precision, voice_manifest

KEPT = re.compile(r"[ab][fm]_[a-z]+")
SECONDS = 3.0


def main(run: str) -> None:
    out = BUILT_IN / BASE
    shutil.rmtree(out, ignore_errors=True)
    export_voice(run, out, half=True)
    # The encoder too: where rounding changes a code of a fine-tuning, its neighbour sounds alike.
    arrays = {
        name: half_precision("", value) if "encoder" in name else value for name, value in read_arrays(out).items()
    }
    save_arrays(out, arrays, voice_manifest(out).to_metadata())
    kept = [
        Speaker(one.name, "en", one.wave[: int(SECONDS * SAMPLE_RATE)])
        for one in load_speakers(out).values()
        if KEPT.fullmatch(one.name)
    ]
    # The export needs no speakers and no aligner of its own: those of the folder around it are read.
    (out / SPEAKERS_FILE).unlink()
    aligner = (out / ALIGNER_FILE).read_bytes()
    (out / ALIGNER_FILE).unlink()
    export_litert(out, out / KEPT_EXPORT, weights="int8")
    (out / ALIGNER_FILE).write_bytes(aligner)
    save_speakers(out, kept)
    for path in sorted(out.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            print(f"{path.relative_to(out)}  {path.stat().st_size / 1e6:.2f} MB")
    print(f"{sum(path.stat().st_size for path in out.rglob('*')) / 1e6:.1f} MB, {len(kept)} speakers")


if __name__ == "__main__":
    main(*sys.argv[1:])
