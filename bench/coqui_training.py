"""Coqui's side of `bench.train`: its own `GPTTrainer` and `XTTSDataset` over the clips that ours learns.

Runs in a Python that has coqui-tts and imports nothing of ours. One thread, f32, random weights. Its own: how clips are
drawn, padded and conditioned, mels and codes on the fly, forward, loss and optimiser. Not its own, and not slower:
files are read with soundfile (torchaudio needs FFmpeg), tokens come ready-made from the list of clips.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import soundfile
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from TTS.tts.layers.xtts.dvae import DiscreteVAE
from TTS.tts.layers.xtts.trainer import dataset as coqui_dataset
from TTS.tts.layers.xtts.trainer.gpt_trainer import GPTArgs, GPTTrainer, GPTTrainerConfig

AUDIO_CODES = 1024
TEXT_TOKENS, START_TEXT = 6681, 261
SAMPLE_RATE = 22050


class StoredTokens:
    """Stands where Coqui's tokenizer stands: the text of a sample is its number in the list."""

    def __init__(self, tokens: list[list[int]]) -> None:
        self._tokens = tokens

    def encode(self, text: str, _language: str) -> list[int]:
        return self._tokens[int(text)]


def read_audio(path: str, _rate: int) -> torch.Tensor:
    wave, _ = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(wave.T.copy())


def build(arguments: argparse.Namespace, scratch: Path) -> GPTTrainer:
    # Coqui insists on files: random weights, norms of one, and a vocabulary, which decides the embedding's size.
    dvae, norms, vocabulary = scratch / "dvae.pth", scratch / "norms.pth", scratch / "vocab.json"
    words = {"[STOP]": 0, "[UNK]": 1, "[START]": START_TEXT, **{f"w{n}": n for n in range(2, TEXT_TOKENS)}}
    words.pop(f"w{START_TEXT}")
    Tokenizer(WordLevel(words, unk_token="[UNK]")).save(str(vocabulary))
    made = DiscreteVAE(
        channels=80,
        normalization=None,
        positional_dims=1,
        num_tokens=AUDIO_CODES,
        codebook_dim=512,
        hidden_dim=512,
        num_resnet_blocks=3,
        kernel_size=3,
        num_layers=2,
        use_transposed_convs=False,
    )
    torch.save(made.state_dict(), dvae)
    torch.save(torch.ones(80), norms)
    settings = GPTArgs(
        gpt_layers=arguments.layers,
        gpt_n_model_channels=arguments.width,
        gpt_n_heads=arguments.heads,
        tokenizer_file=str(vocabulary),
        gpt_num_audio_tokens=AUDIO_CODES + 2,
        gpt_start_audio_token=AUDIO_CODES,
        gpt_stop_audio_token=AUDIO_CODES + 1,
        gpt_use_perceiver_resampler=True,
        decoder_input_dim=arguments.width,
        max_text_length=400,
        mel_norm_file=str(norms),
        dvae_checkpoint=str(dvae),
    )
    config = GPTTrainerConfig(
        model_args=settings, batch_size=arguments.clips, num_loader_workers=0, optimizer="AdamW", lr=1e-4
    )
    config.optimizer_params = {"betas": [0.9, 0.96], "eps": 1e-8, "weight_decay": 1e-2}
    trainer = GPTTrainer(config)
    trainer.eval()
    trainer.xtts.gpt.train()
    return trainer


class Epochs:
    """Batches from Coqui's loader, learnt one by one; the seconds of each part are added up."""

    def __init__(self, trainer: GPTTrainer, listed: list[dict[str, Any]]) -> None:
        coqui_dataset.load_audio = read_audio
        trainer.xtts.tokenizer = StoredTokens([one["tokens"] for one in listed])
        samples = [
            {"audio_file": one["audio_file"], "text": str(number), "language": "en"}
            for number, one in enumerate(listed)
        ]
        self._trainer = trainer
        self._loader = trainer.get_data_loader(trainer.config, samples=samples, verbose=False)
        self._optimiser = trainer.get_optimizer()
        self._batches = iter(())

    def learn(self, batches: int) -> dict[str, float]:
        audio = padded = produced = 0.0
        began = time.process_time()
        for _ in range(batches):
            start = time.process_time()
            batch = self._next()
            audio += float(batch["wav_lengths"].sum()) / SAMPLE_RATE
            padded += batch["wav"].numel() / SAMPLE_RATE
            batch = self._trainer.format_batch_on_device(batch)
            produced += time.process_time() - start
            self._optimiser.zero_grad()
            _, losses = self._trainer.train_step(batch, None)
            losses["loss"].backward()
            torch.nn.utils.clip_grad_norm_(self._trainer.xtts.gpt.parameters(), 1.0)
            self._optimiser.step()
        cpu_s = time.process_time() - began
        return {
            "audio_per_cpu_s": audio / cpu_s,
            "producer_share": produced / cpu_s,
            "padding_share": 1 - audio / padded,
            "cpu_s_per_step": cpu_s / batches,
        }

    def _next(self) -> dict[str, Any]:
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        return batch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("list", type=Path)
    for name in ("layers", "width", "heads", "clips", "batches"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        epochs = Epochs(build(arguments, Path(scratch)), json.loads(arguments.list.read_text()))
    random.seed(0)
    epochs.learn(1)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(epochs.learn(arguments.batches)), flush=True)


if __name__ == "__main__":
    main()
