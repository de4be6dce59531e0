"""Coqui's side of `bench.synth` and `bench.speak`: its own `Xtts.inference` and `inference_stream`, random weights.

Runs in a Python that has coqui-tts and imports nothing of ours. One thread, f32. Tokens come ready-made, as many as
ours reads; every text is spoken in the same number of codes. Weight norm is folded, which Coqui leaves to the user.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.parametrize import remove_parametrizations
from TTS.tts.configs.xtts_config import XttsArgs, XttsConfig
from TTS.tts.models.xtts import Xtts

AUDIO_CODES = 1024
LATENTS = 32


class StoredTokens:
    """Stands where Coqui's tokenizer stands."""

    def __init__(self, tokens: int) -> None:
        self._ids = torch.randint(10, 6000, (tokens,)).tolist()

    def encode(self, _text: str, lang: str) -> list[int]:
        return self._ids


def build(arguments: argparse.Namespace) -> Xtts:
    settings = XttsArgs(
        gpt_layers=arguments.layers,
        gpt_n_model_channels=arguments.width,
        gpt_n_heads=arguments.heads,
        gpt_number_text_tokens=6681,
        gpt_start_text_token=261,
        gpt_stop_text_token=0,
        gpt_num_audio_tokens=AUDIO_CODES + 2,
        gpt_start_audio_token=AUDIO_CODES,
        gpt_stop_audio_token=AUDIO_CODES + 1,
        gpt_use_perceiver_resampler=True,
        decoder_input_dim=arguments.width,
    )
    model = Xtts(XttsConfig(model_args=settings))
    decoder = model.hifigan_decoder.waveform_decoder
    for layer in decoder.ups:
        remove_parametrizations(layer, "weight")
    for block in decoder.resblocks:
        block.remove_weight_norm()
    model.eval()
    model.tokenizer = StoredTokens(arguments.tokens)
    return model


def measured(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("layers", "width", "heads", "tokens", "codes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build(arguments)
    voice = torch.randn(1, LATENTS, arguments.width), torch.randn(1, 512, 1)
    latents = torch.randn(1, arguments.codes, arguments.width)
    length = {"min_new_tokens": arguments.codes, "max_new_tokens": arguments.codes}

    def speak() -> None:
        model.inference("text", "en", *voice, **length)

    def first_sound() -> None:
        next(model.inference_stream("text", "en", *voice, **length))

    @torch.no_grad()
    def generate() -> None:
        text = torch.tensor([model.tokenizer.encode("text", lang="en")])
        sampling = {"do_sample": True, "top_k": 50, "top_p": 0.85, "temperature": 0.75, "repetition_penalty": 10.0}
        model.gpt.generate(voice[0], text, **sampling, **length)

    @torch.no_grad()
    def decode() -> None:
        model.hifigan_decoder(latents, g=voice[1])

    def turn() -> dict[str, Any]:
        figures: dict[str, Any] = {
            "speak_cpu_s": measured(speak),
            "codes_per_cpu_s": arguments.codes / measured(generate),
            "vocoder_cpu_s": measured(decode),
        }
        try:
            figures["first_sound_cpu_s"] = measured(first_sound)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            figures["no_stream"] = f"{type(error).__name__}: {error}"[:200]
        figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return figures

    turn()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn()), flush=True)


if __name__ == "__main__":
    main()
