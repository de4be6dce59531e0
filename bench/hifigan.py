"""HiFi-GAN against Coqui's, one thread, CPU-seconds for each second of 24 kHz audio: `python -m bench.hifigan`.

With MYXTTS_PEER_PYTHON (a Python that has coqui-tts) both sides run in turns, in processes of their own; else Coqui's
figure is the one of PEERS. A ratio below 1 means that ours is faster.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PEERS_CPU_S = 0.71
LATENTS = 43
RUNS = 5
ROUNDS = 3
WIDTH = 256


@dataclass(frozen=True)
class Comparison:
    ours_cpu_s: float
    theirs_cpu_s: float
    measured: bool
    """Whether Coqui ran here, or PEERS's figure stands in."""

    @property
    def ratio(self) -> float:
        return self.ours_cpu_s / self.theirs_cpu_s


def ours() -> float:
    """CPU-seconds for each second of audio; call it in a process of its own, before TensorFlow starts."""
    import numpy as np
    import tensorflow as tf

    from myxtts.config.model import ModelConfig
    from myxtts.models.hifigan import OUTPUT_SAMPLE_RATE, HiFiGAN, samples_of

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    decoder = HiFiGAN(ModelConfig(model_size="small"))
    decoder.build()
    random = np.random.default_rng(0)
    latents_BND = tf.constant(random.normal(size=(1, LATENTS, WIDTH)).astype(np.float32))
    speaker_BV = tf.constant(random.normal(size=(1, 512)).astype(np.float32))
    decode = tf.function(lambda latents_BND, speaker_BV: decoder(latents_BND, speaker_BV))
    decode(latents_BND, speaker_BV)
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        decode(latents_BND, speaker_BV).numpy()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) / (samples_of(LATENTS) / OUTPUT_SAMPLE_RATE)


def compare(rounds: int = ROUNDS) -> Comparison:
    """Both sides in turns, so that a noisy neighbour meets both; medians."""
    peer = os.environ.get("MYXTTS_PEER_PYTHON")
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(_run([sys.executable, "-m", "bench.hifigan", "--ours"]))
        if peer:
            script = str(Path(__file__).with_name("coqui_hifigan.py"))
            theirs.append(_run([peer, script, f"--width={WIDTH}", f"--latents={LATENTS}", f"--runs={RUNS}"]))
    return Comparison(statistics.median(mine), statistics.median(theirs) if peer else PEERS_CPU_S, bool(peer))


def _run(command: list[str]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["cpu_s_per_audio_s"])


def main() -> None:
    if "--ours" in sys.argv:
        print(json.dumps({"cpu_s_per_audio_s": ours()}))
        return
    result = compare()
    source = "measured in this run" if result.measured else "quoted from PEERS; set MYXTTS_PEER_PYTHON to measure"
    print(f"HiFi-GAN, CPU-s per audio second: ours {result.ours_cpu_s:.3f}, Coqui {result.theirs_cpu_s:.3f} ({source})")
    print(f"ratio {result.ratio:.2f} (at most 0.65 wanted)")


if __name__ == "__main__":
    main()
