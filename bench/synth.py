"""Speaking: CPU-seconds for each second of speech, and until the first sound, small size, random weights, one thread.

Ours is `Synthesizer` as users call it: phonemes, generation with alignment heads, HiFi-GAN, trimming. Coqui's is its
own `Xtts.inference` (`bench/coqui_speaking.py`). Both speak as many codes for as many text tokens, with a voice that is
known already; random weights never stop by themselves, so the length is set. The reference's cost stands beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from bench.measure import HERE, Others, answer_turns, peer_python, sides
from bench.peers import SMALL, STORED
from bench.report import Report, Row, at_most, finish, parser_for, run_main

CODES = 100
CODE_SECONDS = 1024 / 22050
SENTENCE = "The press of this city was printing books for all the people who could read, and for some who could not."
SENTENCES = 3
REFERENCE_SECONDS = 6


def main(argv: list[str]) -> int:
    parser = parser_for("synth", __doc__)
    parser.add_argument("--ours-side", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.ours_side:
        ours_side(warm_ups=1 if arguments.quick else 2)
        return 0
    return finish(compare(arguments), arguments.json)


def compare(arguments: argparse.Namespace) -> Report:
    peer = peer_python()
    layers, width, heads = SMALL
    sizes = [f"--layers={layers}", f"--width={width}", f"--heads={heads}"]
    theirs = [str(peer), str(HERE / "coqui_speaking.py"), *sizes, f"--codes={CODES}", f"--tokens={text_tokens()}"]
    commands = {
        "ours": [sys.executable, "-m", "bench.synth", "--ours-side", *["--quick"] * arguments.quick],
        "coqui": theirs if peer else None,
    }
    with sides(commands) as living:
        others = Others()
        made: dict[str, list[dict[str, Any]]] = {name: [] for name in living}
        for _ in range(1 if arguments.quick else max(5, arguments.rounds)):
            for name, side in living.items():
                made[name].append(side.turn())
        others_cores = others.cores()
    return Report(
        name="synth", rows=rows_of(made), others_cores=others_cores, quick=arguments.quick, context=context_of(made)
    )


def rows_of(made: dict[str, list[dict[str, Any]]]) -> list[Row]:
    def figures(side: str, what: str, each: float = 1.0) -> list[float]:
        return [one[what] / each for one in made.get(side, []) if what in one]

    seconds = CODES * CODE_SECONDS
    cost = figures("coqui", "speak_cpu_s", seconds)
    first = figures("coqui", "first_sound_cpu_s")
    return [
        Row(
            name="text to wave",
            unit="CPU-s per audio second (the real-time factor of one core)",
            ours=figures("ours", "speak_cpu_s", seconds),
            peer=cost or [STORED["text to wave"]],
            stored=not cost,
            peer_name="Coqui",
            target=at_most(0.5),
        ),
        Row(
            name="first sound of a stream",
            unit="CPU-s",
            ours=figures("ours", "first_sound_cpu_s"),
            peer=first,
            peer_name="Coqui, chunks of 20 codes",
        ),
        Row(name="voice of a 6 s reference", unit="CPU-s", ours=figures("ours", "reference_cpu_s")),
    ]


def context_of(made: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    context: dict[str, Any] = {"spoken": f"{CODES} codes, {CODES * CODE_SECONDS:.1f} s, {text_tokens()} text tokens"}
    generation = statistics.median(one["generation_cpu_s"] for one in made["ours"])
    context["ours, generation's share of text to wave"] = round(
        generation / statistics.median(one["speak_cpu_s"] for one in made["ours"]), 3
    )
    for one in made.get("coqui", [])[:1]:
        if "no_stream" in one:
            context["Coqui does not stream here"] = one["no_stream"]
    return context


def text_tokens() -> int:
    return len(tokenizer().encode(SENTENCE, "en"))


def tokenizer() -> Any:
    from myxtts.text.tokenizer import train_tokenizer

    return train_tokenizer("phonemes", [(SENTENCE, "en")])


def open_random_voice() -> Any:
    """Every part of the small size, random, with a stop that never wins and a limit of CODES codes."""
    import dataclasses

    import keras

    from myxtts.config.config import XTTSConfig
    from myxtts.config.model import ModelConfig
    from myxtts.models.gpt import DEFAULT_ALIGNMENT_HEADS
    from myxtts.synthesis.manifest import VoiceManifest
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.synthesis.tensorflow_model import TensorFlowModel
    from myxtts.synthesis.voice import Voice, build_parts

    keras.utils.set_random_seed(0)
    model = dataclasses.replace(ModelConfig(model_size="small"), max_audio_tokens=CODES)
    manifest = VoiceManifest(
        parts=("conditioning", "gpt", "speaker_encoder", "hifigan"), alignment_heads=tuple(DEFAULT_ALIGNMENT_HEADS)
    )
    parts = build_parts(model, manifest.parts)
    bias = parts.gpt.audio_head.bias.numpy()
    bias[parts.gpt.audio_stop] = -100.0
    parts.gpt.audio_head.bias.assign(bias)
    voice = Voice(
        manifest=manifest, config=XTTSConfig(model=model), tokenizer=tokenizer(), sha256="random", speakers={}
    )
    return Synthesizer(voice, TensorFlowModel(voice, parts))


def ours_side(warm_ups: int) -> None:
    import numpy as np

    synthesizer = open_random_voice()
    wave = (0.1 * np.random.default_rng(0).standard_normal(22050 * REFERENCE_SECONDS)).astype(np.float32)
    text = " ".join([SENTENCE] * SENTENCES)

    def timed(work: Any) -> tuple[float, Any]:
        began = time.process_time()
        made = work()
        return time.process_time() - began, made

    def turn(_order: str) -> dict[str, float]:
        synthesizer.forget_references()
        reference_cpu_s, voice = timed(lambda: synthesizer.latents(wave))
        speak_cpu_s, _ = timed(lambda: synthesizer.speak(SENTENCE, reference=voice, checks=None))
        first_cpu_s, _ = timed(lambda: next(synthesizer.stream(text, reference=voice, checks=None)))
        return {
            "reference_cpu_s": reference_cpu_s,
            "speak_cpu_s": speak_cpu_s,
            "first_sound_cpu_s": first_cpu_s,
            "generation_cpu_s": generation_cpu_s(synthesizer, voice),
        }

    for _ in range(warm_ups):
        turn("")
    answer_turns({"ready": True}, turn)


def generation_cpu_s(synthesizer: Any, voice: Any) -> float:
    """The codes alone, by the generator that the synthesizer uses."""
    import numpy as np

    from myxtts.synthesis.speech_model import TextBatch

    ids = synthesizer.voice.tokenizer.encode(SENTENCE, "en")
    began = time.process_time()
    made = synthesizer.model.generate(TextBatch(voice.latents_LD[None], np.array([ids], np.int32), [len(ids)]))
    if int(made.lengths_B[0]) < CODES - 2:
        raise AssertionError(f"{made.lengths_B[0]} codes were spoken, not {CODES}")
    return time.process_time() - began


if __name__ == "__main__":
    raise SystemExit(run_main(main))
