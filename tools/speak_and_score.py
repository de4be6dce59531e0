"""Speak the demo corpus's held-out texts with a run's voice and score the phones that are heard.

    python tools/speak_and_score.py RUN CORPUS OUT [--seed N] [--real]

Writes OUT/*.wav and OUT/scores.json: phone error of sentences and digits for each language, how many did not stop, and
the floors beside it: real held-out clips, and the same through the codec. `myxtts.evaluation.phones` recognises.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

CLIPS_AT_ONCE = 20
REFERENCE_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", action="store_true", help="score real held-out clips and their codec round trip too")
    arguments = parser.parse_args()
    from myxtts.data.prepare import prepare
    from myxtts.evaluation.phones import recogniser_of
    from myxtts.synthesis.voice import find_voice, read_voice_config

    arguments.out.mkdir(parents=True, exist_ok=True)
    started = time.process_time()
    prepared = prepare(str(arguments.corpus), read_voice_config(find_voice(arguments.run)).data)
    recogniser = recogniser_of(arguments.corpus, prepared, arguments.corpus.parent / "recogniser")
    voice = Voice(arguments.run, arguments.corpus)
    scores: dict[str, Any] = {"seed": arguments.seed, "ready_cpu_s": round(time.process_time() - started, 1)}
    if arguments.real:
        scores.update(floors(voice, recogniser, prepared, arguments))
        print(json.dumps(scores), flush=True)
    if voice.speaks:
        for language in ("en", "fa"):
            for kind in ("sentence", "digits"):
                scores[f"{language} {kind}"] = judge(voice, recogniser, language, kind, arguments)
                print(language, kind, scores[f"{language} {kind}"], flush=True)
    (arguments.out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")


class Voice:
    """A run's voice with the demo's speakers as references."""

    def __init__(self, run: Path, corpus: Path) -> None:
        from myxtts.audio.griffin_lim import GriffinLim
        from myxtts.models.xtts import XTTS
        from myxtts.synthesis.voice import find_voice, load_parts, read_voice_config, read_voice_tokenizer

        folder = find_voice(run)
        self.tokenizer = read_voice_tokenizer(folder)
        self.model = XTTS(read_voice_config(folder).model)
        self.speaks = "gpt" in load_parts(folder, self.model)
        self._griffin_lim = GriffinLim()
        if self.speaks:
            self.latents = self._voices(corpus)

    def _voices(self, corpus: Path) -> dict[str, Any]:
        from myxtts.audio.io import read_audio
        from myxtts.audio.mel import CONDITIONING_MEL, SAMPLE_RATE, MelSpectrogram

        lines = [line.split("|") for line in (corpus / "metadata.csv").read_text(encoding="utf-8").splitlines()]
        mel, latents = MelSpectrogram(CONDITIONING_MEL), {}
        # The first clip of each speaker is the reference.
        for name, speaker in {line[3]: (line[0], line[3]) for line in reversed(lines)}.values():
            wave = read_audio(corpus / "wavs" / f"{name}.wav")[: int(REFERENCE_SECONDS * SAMPLE_RATE)]
            mel_BTM, lengths_B = mel(wave[None], np.array([len(wave)], np.int32))
            latents[speaker] = self.model.conditioning(mel_BTM, lengths_B).numpy()
        return latents

    def say(self, texts: list[str], language: str, speakers: list[str], seed: int) -> tuple[list[Any], Any, Any]:
        ids = [self.tokenizer.encode(text, language) for text in texts]
        lengths = np.array([len(row) for row in ids], np.int32)
        text = np.zeros((len(ids), int(lengths.max())), np.int32)
        for row, own in enumerate(ids):
            text[row, : len(own)] = own
        made = self.model.generator().generate(
            np.concatenate([self.latents[speaker] for speaker in speakers]),
            text,
            lengths,
            seeds=[1000 * seed + number for number in range(len(ids))],
            max_codes=[int(4 * length + 20) for length in lengths],
        )
        return self.waves(made.codes_BN, made.lengths_B), made.stopped_B, made.lengths_B

    def waves(self, codes_BN: Any, lengths_B: Any) -> list[Any]:
        lengths_B = np.maximum(np.asarray(lengths_B), 2)
        # Behind a row's end stands the stop token, which is no code.
        codes_BN = np.minimum(codes_BN, self.model.gpt.levels.codes - 1)
        mel_BTM = self.model.dvae.decode(codes_BN, lengths_B)
        waves = self._griffin_lim(mel_BTM, lengths_B * 4).numpy()
        return [wave[: int(length) * 1024 - 256] for wave, length in zip(waves, lengths_B, strict=True)]


def judge(voice: Voice, recogniser: Any, language: str, kind: Any, arguments: Any) -> dict[str, Any]:
    from myxtts.audio.io import write_audio
    from myxtts.data.demo_texts import heldout_texts
    from myxtts.evaluation.scoring import sounds_of
    from myxtts.models.ctc_paths import error_rate
    from myxtts.text.normalise import normalise
    from myxtts.text.phonemes import phonemes_of_many

    texts = list(heldout_texts(language, kind))
    wanted = [sounds_of(ipa) for ipa in phonemes_of_many([normalise(text, language) for text in texts], language)]
    names = sorted(voice.latents)
    heard, unstopped, lines = [], 0, []
    started = time.process_time()
    for first in range(0, len(texts), CLIPS_AT_ONCE):
        chosen = texts[first : first + CLIPS_AT_ONCE]
        speakers = [names[(first + number) % len(names)] for number in range(len(chosen))]
        waves, stopped, _ = voice.say(chosen, language, speakers, arguments.seed)
        unstopped += int((~stopped).sum())
        heard += recogniser.hear(waves)
        for number, (wave, text) in enumerate(zip(waves, chosen, strict=True)):
            name = f"{language}-{kind}-{first + number:02d}-{speakers[number]}.wav"
            write_audio(arguments.out / name, wave, 22050)
            lines.append(f"{name}|{text}")
    (arguments.out / f"{language}-{kind}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "phone_error": round(error_rate(wanted, heard), 4),
        "texts": len(texts),
        "not_stopped": unstopped,
        "cpu_s": round(time.process_time() - started, 1),
    }


def floors(voice: Voice, recogniser: Any, prepared: Any, arguments: Any) -> dict[str, Any]:
    from myxtts.audio.io import write_audio
    from myxtts.audio.mel import MelSpectrogram
    from myxtts.evaluation.phones import read_ipa, spoken_clips
    from myxtts.evaluation.scoring import sounds_of
    from myxtts.models.ctc_paths import error_rate

    clips = list(spoken_clips(prepared, prepared.split()[1], read_ipa(arguments.corpus)))
    mel = MelSpectrogram()
    english = np.array([clip.language == "en" for clip in clips])
    wanted = [sounds_of(clip.ipa) for clip in clips]
    real, coded, used = [], [], set()
    for number, (wave, _, language) in enumerate(clips):
        mel_BTM, lengths_B = mel(wave[None], np.array([len(wave)], np.int32))
        codes_BN, code_lengths_B = voice.model.dvae.encode(mel_BTM, lengths_B)
        used |= set(codes_BN.numpy()[0].tolist())
        round_trip = voice.waves(codes_BN.numpy(), code_lengths_B.numpy())[0]
        write_audio(arguments.out / f"codec-{language}-{number:02d}.wav", round_trip, 22050)
        real += recogniser.hear([wave])
        coded += recogniser.hear([round_trip])

    def error(heard: list[list[str]], mask: Any) -> float:
        return round(
            error_rate(*zip(*[(w, h) for w, h, m in zip(wanted, heard, mask, strict=True) if m], strict=True)), 4
        )

    return {
        "clips": len(clips),
        "codes_used": len(used),
        **{f"real {name}": error(real, mask) for name, mask in (("en", english), ("fa", ~english))},
        **{f"codec {name}": error(coded, mask) for name, mask in (("en", english), ("fa", ~english))},
    }


if __name__ == "__main__":
    main()
