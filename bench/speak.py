"""Speaking without TensorFlow: an exported voice (f32, int8) beside TensorFlow's path and Coqui's, one thread.

Small size, random weights, which never stop by themselves: the length of every text is set. `mel` is a voice with a mel
decoder, `hifigan` one as XTTS v2 is. Every side samples; ours checks and splits as users have it. Start-up is a budget:
what each part of a process that says one sentence takes. Coqui's figures are measured in the same run where it is
installed, and quoted otherwise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import HERE, ONE_THREAD, Others, answer_turns, peer_python, sides
from bench.peers import SMALL, STORED
from bench.report import Report, Row, at_least, at_most, finish, parser_for, run_main
from bench.synth import CODE_SECONDS, CODES, SENTENCE, text_tokens, tokenizer

KINDS = {
    "mel": ("dvae", "conditioning", "gpt", "mel_decoder"),
    "hifigan": ("conditioning", "gpt", "speaker_encoder", "hifigan"),
}
SHORT = "Hello there, my friend."
AT_ONCE = 16
SIDES = ("int8", "f32", "tensorflow")


def main(argv: list[str]) -> int:
    parser = parser_for("speak", __doc__)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--voices", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.make:
        make_voices(arguments.voices)
    elif arguments.side:
        answer_turns({"ready": True}, turn_of(arguments.side, arguments.voices))
    else:
        with tempfile.TemporaryDirectory() as folder:
            return finish(compare(arguments, Path(folder)), arguments.json)
    return 0


def compare(arguments: argparse.Namespace, voices: Path) -> Report:
    own = [sys.executable, "-m", "bench.speak", "--voices", str(voices)]
    subprocess.run([*own, "--make"], cwd=HERE.parent, env={**os.environ, **ONE_THREAD}, check=True, capture_output=True)
    peer = peer_python()
    layers, width, heads = SMALL
    sizes = [f"--layers={layers}", f"--width={width}", f"--heads={heads}"]
    theirs = [str(peer), str(HERE / "coqui_speaking.py"), *sizes, f"--codes={CODES}", f"--tokens={text_tokens()}"]
    commands: dict[str, list[str] | None] = {name: [*own, "--side", name] for name in SIDES}
    commands["coqui"] = theirs if peer else None
    processes = {name: {kind: process_command(voices, kind, name) for kind in KINDS} for name in SIDES}
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in (*commands, "budget")}
    with sides(commands) as living:
        others = Others()
        for side in living.values():
            side.turn()  # compiles, packs weights, fills caches
        for _ in range(1 if arguments.quick else max(5, arguments.rounds)):
            for name, side in living.items():
                made[name].append(side.turn())
            for name, commands_of in processes.items():
                for kind, command in commands_of.items():
                    made[name][-1] |= {f"{kind}_{what}": cost for what, cost in process_cost(command).items()}
            made["budget"].append(budget(voices))
        others_cores = others.cores()
    return Report(
        name="speak", rows=rows_of(made), others_cores=others_cores, quick=arguments.quick, context=context_of(made)
    )


def rows_of(made: dict[str, list[dict[str, Any]]]) -> list[Row]:
    def figures(side: str, what: str, each: float = 1.0) -> list[float]:
        return [one[what] / each for one in made.get(side, []) if what in one]

    seconds = CODES * CODE_SECONDS

    def theirs(what: str, otherwise: float, each: float = 1.0) -> dict[str, Any]:
        measured = figures("coqui", what, each)
        return {"peer": measured or [otherwise], "stored": not measured, "peer_name": "Coqui"}

    generating = theirs("codes_per_cpu_s", STORED["generation"])
    speaking = theirs("speak_cpu_s", STORED["text to wave"], seconds)
    decoding = theirs("vocoder_cpu_s", STORED["hifigan"], seconds)
    remembering = theirs("peak_mb", STORED["memory"])
    sounding = figures("coqui", "first_sound_cpu_s")
    rows = []
    for side in SIDES:
        fastest, full = side == "int8", side == "f32"
        rows += [
            Row(
                name=f"generation, {side}",
                unit="codes per CPU-s",
                ours=figures(side, "codes_per_cpu_s"),
                **generating,
                target=at_least(7.5) if fastest else at_least(3.5) if full else None,
            ),
            Row(
                name=f"text to wave with HiFi-GAN, {side}",
                unit="CPU-s per audio second",
                ours=figures(side, "hifigan_cpu_s", seconds),
                **speaking,
                target=at_most(0.12) if fastest else None,
            ),
            Row(
                name=f"HiFi-GAN alone, {side}",
                unit="CPU-s per audio second",
                ours=figures(side, "vocoder_cpu_s", seconds),
                **decoding,
                target=at_most(0.4) if fastest else None,
            ),
            Row(name=f"text to wave with a mel decoder, {side}", unit="CPU-s per audio second",
                ours=figures(side, "mel_cpu_s", seconds)),
            Row(name=f"first sound of a stream, mel decoder, {side}", unit="CPU-s",
                ours=figures(side, "first_sound_cpu_s"), peer=sounding, peer_name="Coqui" if sounding else "",
                target=at_most(0.15) if fastest and not sounding else None),
            Row(name=f"myxtts synth, whole process, {side}", unit="CPU-s", ours=figures(side, "mel_process_cpu_s"),
                target=at_most(1.2) if fastest else None),
            Row(name=f"text to wave with a mel decoder, most memory, {side}", unit="MB",
                ours=figures(side, "mel_process_mb"), **remembering),
            Row(name=f"text to wave with HiFi-GAN, most memory, {side}", unit="MB",
                ours=figures(side, "hifigan_process_mb"), **remembering, target=at_most(0.45) if fastest else None),
            Row(name=f"{AT_ONCE} texts at once, to codes, against one at a time, {side}", unit="times",
                ours=figures(side, "generated_at_once")),
            Row(name=f"{AT_ONCE} texts at once, to waves, against one at a time, {side}", unit="times",
                ours=figures(side, "at_once"), target=at_least(1.8) if fastest else None),
        ]  # fmt: skip
    return rows


def context_of(made: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    context: dict[str, Any] = {"spoken": f"{CODES} codes, {CODES * CODE_SECONDS:.1f} s, {text_tokens()} text tokens"}
    for part in made["budget"][0]:
        figures = sorted(one[part] for one in made["budget"])
        context[f"start-up of int8, {part}, CPU-s"] = round(figures[len(figures) // 2], 3)
    return context


def make_voices(voices: Path) -> None:
    """A random voice of each kind, and its exports."""
    import dataclasses

    import keras
    import numpy as np

    from myxtts.config.config import XTTSConfig
    from myxtts.config.model import ModelConfig
    from myxtts.models.gpt import DEFAULT_ALIGNMENT_HEADS
    from myxtts.synthesis.litert.export import export_litert
    from myxtts.synthesis.manifest import VoiceManifest
    from myxtts.synthesis.references import Speaker, save_speakers
    from myxtts.synthesis.voice import build_parts, save_voice

    text = tokenizer()
    model = dataclasses.replace(ModelConfig(model_size="small", text_vocab=text.size), max_audio_tokens=CODES)
    wave = (3000 * np.random.default_rng(0).standard_normal(22050 * 6)).astype(np.int16)
    for kind, parts in KINDS.items():
        keras.utils.set_random_seed(0)
        built = build_parts(model, parts)
        bias = built.gpt.audio_head.bias.numpy()
        bias[built.gpt.audio_stop] = -100.0
        built.gpt.audio_head.bias.assign(bias)
        manifest = VoiceManifest(parts=parts, alignment_heads=tuple(DEFAULT_ALIGNMENT_HEADS))
        folder = voices / f"{kind}-tensorflow"
        save_voice(folder, built, manifest, XTTSConfig(model=model), text)
        save_speakers(folder, [Speaker("anna", "en", wave)])
        export_litert(folder, voices / f"{kind}-f32", weights="f32")
        export_litert(folder, voices / f"{kind}-int8", weights="int8")


def turn_of(side: str, voices: Path) -> Callable[[str], dict[str, float]]:
    import numpy as np

    from myxtts.synthesis.opening import open_voice
    from myxtts.synthesis.speech_model import CheckedCodes, TextBatch

    runtime: Any = "tensorflow" if side == "tensorflow" else "litert"
    mel, hifigan = (open_voice(voices / f"{kind}-{side}", runtime=runtime) for kind in KINDS)
    known = {synthesizer: synthesizer.latents(speaker="anna") for synthesizer in (mel, hifigan)}
    ids = mel.voice.tokenizer.encode(SENTENCE, "en")
    # As many different texts, of one length: equal ones would share their prompt.
    text_BU = np.stack([np.roll(ids, turns) for turns in range(AT_ONCE)]).astype(np.int32)
    latents_1LD = known[mel].latents_LD[None]
    width = latents_1LD.shape[-1]

    def generated(rows: int) -> float:
        return timed(
            lambda: mel.model.generate(TextBatch(latents_1LD, text_BU[:rows], [len(ids)] * rows, seeds=range(rows)))
        )

    def turn(_order: str) -> dict[str, float]:
        speak_s = {
            kind: timed(lambda voice=voice: voice.speak(SENTENCE, reference=known[voice], checks=None))
            for kind, voice in (("mel", mel), ("hifigan", hifigan))
        }
        alone_s, together_s = generated(1), generated(AT_ONCE)
        latents_ND = np.random.default_rng(0).standard_normal((CODES, width)).astype(np.float32)
        spoken = CheckedCodes(np.zeros(CODES, np.int32), latents_ND, np.zeros(0, np.int32), None, 1, 0, None)
        decoding_s = speak_s["mel"] - alone_s
        return {
            "codes_per_cpu_s": CODES / alone_s,
            "mel_cpu_s": speak_s["mel"],
            "hifigan_cpu_s": speak_s["hifigan"],
            "vocoder_cpu_s": timed(lambda: hifigan.model.decode(spoken, ids, known[hifigan].speaker_V, 1.0)),
            "first_sound_cpu_s": timed(lambda: next(mel.stream(SHORT, reference=known[mel], checks=None))),
            "generated_at_once": AT_ONCE * alone_s / together_s,
            "at_once": AT_ONCE * speak_s["mel"] / (together_s + AT_ONCE * decoding_s),
        }

    return turn


def timed(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def process_command(voices: Path, kind: str, side: str) -> list[str]:
    runtime = "tensorflow" if side == "tensorflow" else "litert"
    voice = voices / f"{kind}-{side}"
    options = ["--voice", str(voice), "--runtime", runtime, "--no-hallucination-checks", "--out", str(voices / "a.wav")]
    return [sys.executable, "-m", "myxtts", "synth", SHORT, *options]


def process_cost(command: list[str]) -> dict[str, float]:
    """CPU-seconds and largest memory of one process: of a child of our own, for `ru_maxrss` is that of the largest."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.execve(command[0], command, {**os.environ, **ONE_THREAD})
    _, code, used = os.wait4(child, 0)
    if code:
        raise RuntimeError(f"{' '.join(command)} failed")
    return {"process_cpu_s": used.ru_utime + used.ru_stime, "process_mb": used.ru_maxrss / 1024}


def budget(voices: Path) -> dict[str, float]:
    """What the parts of a start take, one after the other in one process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.speak_startup", str(voices / "mel-int8")],
        cwd=HERE.parent,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    parts = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    return {name: float(seconds) for name, seconds in parts}


if __name__ == "__main__":
    raise SystemExit(run_main(main))
