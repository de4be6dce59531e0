"""Coqui's side of `bench.hifigan`: runs in a Python that has coqui-tts, prints one JSON object.

Imports nothing of ours. One thread, f32, random weights without weight norm, CPU-seconds for a second of 24 kHz audio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch.nn.utils.parametrize import remove_parametrizations
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--latents", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    decoder = HifiDecoder(decoder_input_dim=arguments.width).eval()
    parameters = sum(weight.numel() for weight in decoder.waveform_decoder.parameters())
    for layer in decoder.waveform_decoder.ups:
        remove_parametrizations(layer, "weight")
    for block in decoder.waveform_decoder.resblocks:
        block.remove_weight_norm()
    latents, speaker = torch.randn(1, arguments.latents, arguments.width), torch.randn(1, 512, 1)
    seconds = []
    with torch.inference_mode():
        for _ in range(arguments.runs + 1):
            start = time.process_time()
            wave = decoder(latents, speaker)
            seconds.append(time.process_time() - start)
    cost = statistics.median(seconds[1:]) / (wave.shape[-1] / 24000)
    print(json.dumps({"cpu_s_per_audio_s": cost, "parameters": parameters}))


if __name__ == "__main__":
    main()
