"""What reads from outside, each as a function of mutated bytes; none needs TensorFlow.

A target makes its valid files once, in a folder of its own; a case then puts one mutated file in the place of a valid
one and reads as the commands do.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from safetensors.numpy import save

from myxtts.audio.io import read_audio
from myxtts.config.config import XTTSConfig
from myxtts.data.corpora import list_corpus
from myxtts.data.prepare import prepare
from myxtts.data.prepared import open_prepared
from myxtts.evaluation.phones import read_ipa
from myxtts.models.coqui.folder import sampling_of
from myxtts.models.coqui.reader import read_pth, state_dict
from myxtts.models.weights import read_arrays, save_arrays
from myxtts.monitoring.report import render_report
from myxtts.monitoring.run_state import read_state
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.references import Speaker, load_latents, load_speakers, read_reference, save_speakers
from myxtts.synthesis.splitting import split_text
from myxtts.synthesis.voice import read_voice
from myxtts.text.languages import AUTO, CODES
from myxtts.text.tokenizer import load_tokenizer, train_tokenizer
from myxtts.training.alignment import read_stored
from myxtts.training.checkpoint import Checkpoint, load_latest, save_checkpoint
from tests.awkward_texts import AWKWARD
from tests.corpus_maker import make_ljspeech, sentence, settings, tone
from tests.fuzz.mutation import mutated, mutated_json, mutated_text
from tests.pth_writer import Writer, tensor, write_program

CHECKSUMS = ("manifest_sha256", "files_sha256")
"""Of our manifests: with them, every change is found before anything is read."""

Case = Callable[[random.Random], object]
"""Makes an input, writes it, and reads it; what it returns is not looked at."""


def metadata(folder: Path) -> Case:
    make_ljspeech(folder / "corpus", seconds=[0.1] * 3)
    file = folder / "corpus" / "metadata.csv"
    whole = file.read_bytes() + "clip_1|سلام|Grüße, 12 Äpfel!\n".encode()

    def case(drawn: random.Random) -> object:
        file.write_bytes(mutated(whole, drawn))
        return list_corpus(folder / "corpus", language=drawn.choice((*CODES, AUTO))).entries

    return case


def common_voice(folder: Path) -> Case:
    make_ljspeech(folder, seconds=[0.1] * 3)
    (folder / "metadata.csv").unlink()
    (folder / "wavs").rename(folder / "clips")
    whole = b"client_id\tpath\tsentence\tlocale\n" + b"".join(
        b"a\tclip_%d.wav\tHello there\ten\n" % n for n in range(3)
    )

    def case(drawn: random.Random) -> object:
        (folder / "train.tsv").write_bytes(mutated(whole, drawn))
        return list_corpus(folder / "train.tsv").entries

    return case


def jsonl(folder: Path) -> Case:
    make_ljspeech(folder, seconds=[0.1] * 3)
    (folder / "metadata.csv").unlink()
    lines = [
        {"audio": f"wavs/clip_{n}.wav", "text": sentence(n), "speaker": "a", "language": "en", "id": n}
        for n in range(3)
    ]

    def case(drawn: random.Random) -> object:
        changed = [mutated_json(json.dumps(line).encode(), drawn) for line in lines]
        (folder / "manifest.jsonl").write_bytes(b"\n".join(changed))
        return list_corpus(folder).entries

    return case


def prepared_corpus(folder: Path) -> Case:
    corpus = make_ljspeech(folder / "corpus", seconds=[0.2] * 3)
    out = prepare(corpus, settings(folder, min_clip_seconds=0.1), out=folder / "out", workers=1).path
    files = {path.name: path.read_bytes() for path in out.iterdir()}

    def case(drawn: random.Random) -> object:
        name = drawn.choice(sorted(files))
        change = partial(mutated_json, without=CHECKSUMS) if name.endswith(".json") else mutated
        (out / name).write_bytes(change(files[name], drawn))
        try:
            opened = open_prepared(out)
            return [opened.tokenizer, opened.report, *(opened.read(clip) for clip in range(len(opened)))]
        finally:
            (out / name).write_bytes(files[name])

    return case


def preparing_again(folder: Path) -> Case:
    """What a killed `prepare` left, changed: the next call makes the corpus all the same."""
    corpus = make_ljspeech(folder / "corpus", seconds=[0.2] * 2)
    config = settings(folder, min_clip_seconds=0.1)
    out = prepare(corpus, config, out=folder / "out", workers=1).path
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix == ".json"}

    def case(drawn: random.Random) -> object:
        for name, content in files.items():
            (out / name).write_bytes(content)
        name = drawn.choice(sorted(files))
        (out / name).write_bytes(mutated_json(files[name], drawn, without=CHECKSUMS))
        return prepare(corpus, config, out=out, workers=1).read(0)

    return case


def audio(folder: Path) -> Case:
    files = []
    for kind, subtype in (("WAV", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "IMA_ADPCM"), ("FLAC", "PCM_16"),
                          ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16")):  # fmt: skip
        written = io.BytesIO()
        soundfile.write(written, tone(0.6), 22050, format=kind, subtype=subtype)
        files.append((kind.lower(), written.getvalue()))

    def case(drawn: random.Random) -> object:
        kind, whole = drawn.choice(files)
        path = folder / f"clip.{kind}"
        # Headers are where parsers break.
        head, body = whole[:128], whole[128:]
        path.write_bytes(mutated(head, drawn) + body if drawn.random() < 0.7 else mutated(whole, drawn))
        return read_audio(path) if drawn.random() < 0.5 else read_reference(path)

    return case


def yaml(folder: Path) -> Case:
    path = folder / "config.yaml"
    XTTSConfig().to_yaml(path)
    whole = path.read_bytes()

    def case(drawn: random.Random) -> object:
        path.write_bytes(mutated(whole, drawn))
        return XTTSConfig.from_yaml(path)

    return case


def events(folder: Path) -> Case:
    path = folder / "events.jsonl"
    lines: list[dict[str, object]] = [
        {"event": "run_start", "time": 1.0, "version": "0.2", "command": "train", "mode": "cpu", "stages": ["codec"]},
        {"event": "devices", "time": 1.5, "mode": "cpu", "lines": ["a"]},
        {"event": "training_start", "time": 2.0, "stage": "codec", "step": 1, "total_steps": 3},
        *({"event": "step", "time": 3.0 + n, "stage": "codec", "step": n, "loss": 1.0 / n} for n in range(1, 4)),
        {"event": "memory", "time": 6.0, "devices": {"model": {"device": "/CPU:0", "current_mb": 3.0}}},
        {"event": "window", "time": 6.5, "stage": "codec", "step": 3, "steps": 3, "stall_share": 0.1},
        {"event": "validation", "time": 7.0, "stage": "codec", "step": 3, "loss": 0.5},
        {"event": "sample", "time": 7.5, "stage": "codec", "step": 3, "path": "samples/a.wav", "text": "hello"},
        {"event": "run_end", "time": 8.0, "reason": "finished", "message": "x"},
    ]

    def case(drawn: random.Random) -> object:
        changed = [json.dumps(line).encode() for line in lines]
        for _ in range(drawn.choice([1, 2, 5])):
            place = drawn.randrange(len(changed))
            changed[place] = mutated_json(json.dumps(lines[place]).encode(), drawn)
        path.write_bytes(b"\n".join(changed) + drawn.choice([b"", b"\n"]))
        return render_report(read_state(path), folder)

    return case


def _voice(folder: Path) -> dict[str, bytes]:
    tokenizer = train_tokenizer("characters", [("hello there", "en")])
    XTTSConfig().to_yaml(folder / "config.yaml")
    tokenizer.save(folder / "tokenizer.json")
    save_speakers(folder, [Speaker("anna", "en", np.arange(50, dtype=np.int16))])
    weights = {"gpt/a": np.arange(6, dtype=np.float32).reshape(2, 3), "dvae/b": np.ones(4, np.float32)}
    save_arrays(folder, weights, VoiceManifest(parts=("gpt", "dvae")).to_metadata())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def voice_folder(folder: Path) -> Case:
    files = _voice(folder)

    def case(drawn: random.Random) -> object:
        name = drawn.choice(sorted(files))
        if name.endswith(".json"):
            changed = mutated_json(files[name], drawn, without=CHECKSUMS)
        elif name.endswith(".safetensors"):
            changed = _safetensors(files[name], drawn)
        else:
            changed = mutated(files[name], drawn)
        (folder / name).write_bytes(changed)
        try:
            return read_voice(folder).sampling, read_arrays(folder)
        finally:
            (folder / name).write_bytes(files[name])

    return case


def _safetensors(content: bytes, drawn: random.Random) -> bytes:
    """Its header's JSON changed and its length with it, or any bytes."""
    if drawn.random() < 0.3:
        return mutated(content, drawn)
    length = int.from_bytes(content[:8], "little")
    header = mutated_json(content[8 : 8 + length], drawn)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def latents(folder: Path) -> Case:
    arrays = {"latents": np.zeros((2, 4), np.float32), "speaker": np.zeros(3, np.float32)}
    whole = save(arrays, {"format": "myxtts-voice-latents-1", "voice": "abc"})
    path = folder / "mine.safetensors"

    def case(drawn: random.Random) -> object:
        path.write_bytes(_safetensors(whole, drawn))
        return load_latents(path, "abc", (2, 4))

    return case


def speakers(folder: Path) -> Case:
    save_speakers(folder, [Speaker("anna", "en", np.arange(50, dtype=np.int16))])
    path = next(folder.iterdir())
    whole = path.read_bytes()

    def case(drawn: random.Random) -> object:
        path.write_bytes(_safetensors(whole, drawn))
        return load_speakers(folder)

    return case


def pth(folder: Path) -> Case:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = io.BytesIO()
    content = {"model": {"a": tensor(values, "0"), "b": tensor(values, "1", shape=(3, 2))}, "step": 5, "x": [1, "y"]}
    Writer(program, protocol=2).dump(content)
    path = folder / "model.pth"
    whole = write_program(path, program.getvalue(), {"0": values, "1": values}).read_bytes()

    def case(drawn: random.Random) -> object:
        if drawn.random() < 0.7:  # past the zip's checksum
            write_program(path, mutated(program.getvalue(), drawn), {"0": values, "1": values})
        else:
            path.write_bytes(mutated(whole, drawn))
        read = state_dict(read_pth(path), path)
        return [float(np.asarray(value, np.float64).sum()) for value in read.values()]

    return case


def coqui_config(folder: Path) -> Case:
    whole = json.dumps({"temperature": 0.7, "top_k": 50, "top_p": 0.8, "repetition_penalty": 5.0}).encode()

    def case(drawn: random.Random) -> object:
        (folder / "config.json").write_bytes(mutated_json(whole, drawn))
        return sampling_of(folder)

    return case


def tokenizer_json(folder: Path) -> Case:
    pairs = [("hello there", "en"), ("سلام دنیا", "fa")]
    whole = []
    for frontend in ("characters", "bpe"):
        train_tokenizer(frontend, pairs, 300).save(folder / "tokenizer.json")
        whole.append((folder / "tokenizer.json").read_bytes())
    # As XTTS v2's vocab.json: the library's own format.
    whole.append(json.dumps(json.loads(whole[-1])["bpe"]).encode())

    def case(drawn: random.Random) -> object:
        (folder / "tokenizer.json").write_bytes(mutated_json(drawn.choice(whole), drawn))
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        return tokenizer.decode(tokenizer.encode("hello سلام", "en")), tokenizer.sounding()

    return case


def texts(folder: Path) -> Case:
    tokenizer = train_tokenizer("characters", [("hello there", "en")])

    def case(drawn: random.Random) -> object:
        text = mutated_text(drawn.choice(AWKWARD)[0], drawn)
        language = drawn.choice(CODES)
        pieces = split_text(text, 200)
        return [tokenizer.encode(text, language), *(tokenizer.encode(piece.text, language) for piece in pieces)]

    return case


def spoken_texts(folder: Path) -> Case:
    """Through espeak-ng, which is C."""
    tokenizer = train_tokenizer("phonemes", [("hello there", "en")])

    def case(drawn: random.Random) -> object:
        return tokenizer.encode(mutated_text(drawn.choice(AWKWARD)[0], drawn)[:400], drawn.choice(CODES))

    return case


def checkpoints(folder: Path) -> Case:
    for step in (1, 2):
        save_checkpoint(folder / "good", Checkpoint(step=step, arrays={"a": np.ones(3)}, state={"data": {"epoch": 0}}))
    newest = folder / "bad" / "step-00000002"

    def case(drawn: random.Random) -> object:
        shutil.rmtree(folder / "bad", ignore_errors=True)
        shutil.copytree(folder / "good", folder / "bad")
        path = newest / drawn.choice(["manifest.json", "model.safetensors"])
        change = mutated_json if path.suffix == ".json" else mutated
        path.write_bytes(change(path.read_bytes(), drawn))
        loaded = load_latest(folder / "bad")
        assert loaded is not None
        return loaded.step

    return case


def alignments(folder: Path) -> Case:
    stored = io.BytesIO()
    np.savez_compressed(stored, tokens=np.arange(40, dtype=np.uint16), starts=np.array([0, 20, 40]))
    path = folder / "alignment.npz"

    def case(drawn: random.Random) -> object:
        path.write_bytes(mutated(stored.getvalue(), drawn))
        return read_stored(path, ["tokens", "starts"])

    return case


def phonemes_csv(folder: Path) -> Case:
    whole = "clip_0|hɛˈloʊ\nclip_1|salɒːm\n".encode()

    def case(drawn: random.Random) -> object:
        (folder / "phonemes.csv").write_bytes(mutated(whole, drawn))
        return read_ipa(folder)

    return case


TARGETS: dict[str, Callable[[Path], Case]] = {
    target.__name__: target
    for target in (
        *(metadata, common_voice, jsonl, prepared_corpus, preparing_again, audio, yaml, events, voice_folder, latents),
        *(speakers, pth, coqui_config, tokenizer_json, texts, spoken_texts, checkpoints, alignments, phonemes_csv),
    )
}
