"""Coqui's side of `bench.model`: runs in a Python that has coqui-tts, prints one JSON object.

Imports nothing of ours. One thread, f32, random weights, CPU-seconds, medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.utils.parametrize import remove_parametrizations
from TTS.tts.layers.xtts.gpt import GPT
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder

AUDIO_CODES = 1024
TEXT_TOKENS, CODES, MEL_FRAMES, CLIPS = 80, 200, 517, 4
DECODED_LATENTS = 43
REFERENCE_S, SPEAKER_SAMPLE_RATE = 9.7, 16000


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("layers", "width", "heads", "steps", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--what", choices=list(RUNS), required=True)
    arguments = parser.parse_args()
    imports_mb = peak_mb()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    figure = RUNS[arguments.what](arguments)
    print(json.dumps({"figure": figure, "peak_mb": peak_mb(), "imports_mb": imports_mb}))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(arguments: argparse.Namespace) -> GPT:
    return GPT(
        layers=arguments.layers,
        model_dim=arguments.width,
        heads=arguments.heads,
        max_text_tokens=402,
        max_mel_tokens=605,
        max_prompt_tokens=70,
        number_text_tokens=6681,
        num_audio_tokens=AUDIO_CODES + 2,
        start_audio_token=AUDIO_CODES,
        stop_audio_token=AUDIO_CODES + 1,
        use_perceiver_resampler=True,
        code_stride_len=1024,
    )


def median_cpu_s(run: Callable[[], object], steps: int) -> float:
    """CPU-seconds of one run; the first warms up."""
    seconds = []
    for _ in range(steps + 1):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[1:])


def train(arguments: argparse.Namespace) -> float:
    model = build(arguments).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text, codes = torch.randint(10, 6000, (CLIPS, TEXT_TOKENS)), torch.randint(0, AUDIO_CODES, (CLIPS, CODES))
    mel = torch.randn(CLIPS, 1, 80, MEL_FRAMES)
    text_lengths, wave_lengths = torch.full((CLIPS,), TEXT_TOKENS), torch.full((CLIPS,), CODES * 1024)

    def step() -> None:
        optimiser.zero_grad()
        text_loss, audio_loss, _ = model(text, text_lengths, codes.clone(), wave_lengths, cond_mels=mel)
        (0.01 * text_loss + audio_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return median_cpu_s(step, arguments.steps)


def generate(arguments: argparse.Namespace) -> float:
    model = build(arguments).eval()
    model.init_gpt_for_inference()
    text = torch.randint(10, 6000, (1, TEXT_TOKENS))
    latents = torch.randn(1, 32, arguments.width)

    @torch.no_grad()
    def speak() -> None:
        model.generate(
            latents,
            text,
            do_sample=True,
            top_k=50,
            top_p=0.85,
            temperature=0.75,
            repetition_penalty=10.0,
            min_new_tokens=arguments.tokens,
            max_new_tokens=arguments.tokens,
        )

    return arguments.tokens / median_cpu_s(speak, arguments.steps)


def conditioning(arguments: argparse.Namespace) -> float:
    model = build(arguments).eval()
    mel = torch.randn(1, 80, MEL_FRAMES)
    return median_cpu_s(torch.no_grad()(lambda: model.get_style_emb(mel)), arguments.steps)


def speaker(arguments: argparse.Namespace) -> float:
    encoder = HifiDecoder(decoder_input_dim=arguments.width).eval().speaker_encoder
    wave = torch.randn(1, int(REFERENCE_S * SPEAKER_SAMPLE_RATE))
    return median_cpu_s(torch.no_grad()(lambda: encoder(wave, l2_norm=True)), arguments.steps)


def hifigan(arguments: argparse.Namespace) -> float:
    """CPU-seconds for each second of 24 kHz audio, with weight norm folded, which Coqui leaves to the user."""
    decoder = HifiDecoder(decoder_input_dim=arguments.width).eval()
    for layer in decoder.waveform_decoder.ups:
        remove_parametrizations(layer, "weight")
    for block in decoder.waveform_decoder.resblocks:
        block.remove_weight_norm()
    latents, speaker = torch.randn(1, DECODED_LATENTS, arguments.width), torch.randn(1, 512, 1)
    with torch.no_grad():
        seconds = decoder(latents, g=speaker).shape[-1] / 24000
    return median_cpu_s(torch.no_grad()(lambda: decoder(latents, g=speaker)), arguments.steps) / seconds


RUNS = {
    "train": train,
    "generate": generate,
    "conditioning": conditioning,
    "speaker": speaker,
    "hifigan": hifigan,
}
main()
