"""Run Coqui's GPT on weights and inputs from a formula, and store what comes out in tests/golden/gpt.npz.

For developers only; needs the environment of shared/PEERS.md (coqui-tts and torch):

    PEER_PYTHON tools/golden_gpt.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor, SuppressTokensLogitsProcessor
from TTS.tts.layers.xtts.gpt import GPT

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.golden import formula
from tests.golden import gpt_case as case

CODE_STRIDE = 1024


def build() -> tuple[GPT, dict[str, tuple[int, ...]]]:
    model = GPT(
        layers=case.LAYERS,
        model_dim=case.WIDTH,
        heads=case.HEADS,
        start_text_token=case.TEXT_START,
        stop_text_token=case.TEXT_STOP,
        max_text_tokens=case.MAX_TEXT,
        max_mel_tokens=case.MAX_AUDIO,
        number_text_tokens=case.TEXT_VOCAB,
        num_audio_tokens=case.AUDIO_CODES + 2,
        start_audio_token=case.AUDIO_CODES,
        stop_audio_token=case.AUDIO_CODES + 1,
        code_stride_len=CODE_STRIDE,
        use_perceiver_resampler=True,
    )
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({name: torch.from_numpy(value) for name, value in formula.weights(shapes).items()})
    model.eval()
    model.init_gpt_for_inference()
    return model, shapes


def teacher_forced(model: GPT) -> dict[str, np.ndarray]:
    """Conditioning latents, logits, losses and decoder latents of a padded batch."""
    text, codes = torch.from_numpy(case.text_rows()).long(), torch.from_numpy(case.code_rows()).long()
    text_lengths = torch.from_numpy(case.TEXT_LENGTHS).long()
    wave_lengths = torch.from_numpy(case.CODE_LENGTHS).long() * CODE_STRIDE
    mel_BMT = torch.from_numpy(case.mel_rows()).transpose(1, 2)
    seen: list[torch.Tensor] = []
    hook = model.text_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    text_loss, audio_loss, audio_logits = model(
        text, text_lengths, codes.clone(), wave_lengths, cond_mels=mel_BMT.unsqueeze(1)
    )
    hook.remove()
    latents_BDL = model.get_style_emb(mel_BMT)
    first = slice(0, 1)
    decoder_latents = model(
        text[first], text_lengths[first], codes[first].clone(), wave_lengths[first],
        cond_latents=latents_BDL[first].transpose(1, 2), return_latent=True,
    )  # fmt: skip
    return {
        "latents": latents_BDL.transpose(1, 2).numpy(),
        "text_logits": seen[0].numpy(),
        "audio_logits": audio_logits.transpose(1, 2).numpy(),
        "text_loss": text_loss.numpy(),
        "audio_loss": audio_loss.numpy(),
        "decoder_latents": decoder_latents.numpy(),
    }


def greedy(model: GPT, penalty: float) -> np.ndarray:
    """Greedy codes without two quirks that ours has not either.

    Coqui's prompt is filled with code 1, which its penalty then counts as spoken; and it can speak the start token.
    """
    text = torch.from_numpy(case.text_rows()[:1]).long()
    mel_BMT = torch.from_numpy(case.mel_rows()[:1]).transpose(1, 2)
    prompt = 32 + text.shape[1] + 3
    processors = [SuppressTokensLogitsProcessor([case.AUDIO_CODES])]
    if penalty > 1:
        processors.append(RepetitionPenaltyLogitsProcessor(penalty, prompt_ignore_length=prompt))
    codes = model.generate(
        model.get_style_emb(mel_BMT).transpose(1, 2),
        text,
        do_sample=False,
        num_beams=1,
        logits_processor=LogitsProcessorList(processors),
        min_new_tokens=case.STEPS,
        max_new_tokens=case.STEPS,
    )
    return codes.numpy().astype(np.int32)


def main() -> None:
    torch.set_grad_enabled(False)
    model, shapes = build()
    outputs = teacher_forced(model)
    outputs["greedy"] = greedy(model, 1.0)
    outputs["greedy_penalised"] = greedy(model, case.PENALTY)
    path = formula.save("gpt", shapes, outputs)
    for name in ("greedy", "greedy_penalised"):
        print(name, len(set(outputs[name][0].tolist())), "different codes", outputs[name][0, :30])
    print(f"gpt: {path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
