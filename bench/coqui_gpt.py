"""Coqui's side of `bench.model`: runs in a Python that has coqui-tts, prints one JSON object.

Imports nothing of ours. One thread, f32, random weights, CPU-seconds, medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time

import torch
from TTS.tts.layers.xtts.gpt import GPT

AUDIO_CODES = 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--what", choices=["train", "generate"], required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(
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
    result = train(model, arguments.steps) if arguments.what == "train" else generate(model, arguments)
    result["parameters"] = sum(weight.numel() for weight in model.parameters())
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def train(model: GPT, steps: int) -> dict[str, float]:
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text, codes = torch.randint(10, 6000, (4, 80)), torch.randint(0, AUDIO_CODES, (4, 200))
    mel = torch.randn(4, 1, 80, 517)
    text_lengths, wave_lengths = torch.full((4,), 80), torch.full((4,), 200 * 1024)
    seconds = []
    for _ in range(steps + 1):
        start = time.process_time()
        optimiser.zero_grad()
        text_loss, audio_loss, _ = model(text, text_lengths, codes.clone(), wave_lengths, cond_mels=mel)
        (0.01 * text_loss + audio_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seconds.append(time.process_time() - start)
    return {"train_step_cpu_s": statistics.median(seconds[1:]), "train_step_cpu_s_best": min(seconds[1:])}


def generate(model: GPT, arguments: argparse.Namespace) -> dict[str, float]:
    model.eval()
    model.init_gpt_for_inference()
    text = torch.randint(10, 6000, (1, 80))
    rates = []
    with torch.no_grad():
        latents = model.get_style_emb(torch.randn(1, 80, 517)).transpose(1, 2)
        for _ in range(arguments.steps + 1):
            start = time.process_time()
            codes = model.generate(
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
            rates.append(codes.shape[1] / (time.process_time() - start))
    return {"tokens_per_cpu_s": statistics.median(rates[1:]), "tokens_per_cpu_s_best": max(rates[1:])}


main()
