"""Run Coqui's own XTTS parts on weights and inputs from a formula, and store what comes out in tests/golden.

For developers only; needs the environment of shared/PEERS.md (coqui-tts and torch), which the package never needs:

    PEER_PYTHON tools/make_golden.py [PART ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.golden import formula
from tests.golden.cases import DVAE, HIFIGAN, SPEAKER

Shapes = dict[str, tuple[int, ...]]


def fill(module: torch.nn.Module, keep: tuple[str, ...] = ()) -> Shapes:
    """Give the module the formula's weights; returns the shapes of those given."""
    state = module.state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items() if not name.startswith(keep)}
    state.update({name: torch.from_numpy(value) for name, value in formula.weights(shapes).items()})
    module.load_state_dict(state)
    module.eval()
    return shapes


def make_dvae() -> Path:
    from TTS.tts.layers.xtts.dvae import DiscreteVAE

    original = DiscreteVAE(
        channels=80,
        normalization=None,
        positional_dims=1,
        num_tokens=DVAE.codes,
        codebook_dim=DVAE.code_width,
        hidden_dim=DVAE.width // 2,
        num_resnet_blocks=3,
        kernel_size=3,
        num_layers=2,
        use_transposed_convs=False,
    )
    shapes = fill(original, keep=("discrete_loss",))
    scaled_BMT = torch.from_numpy(DVAE.mel() / DVAE.mel_stats()).transpose(1, 2)
    codes_BN = original.get_codebook_indices(scaled_BMT)
    decoded_BMT, _ = original.decode(codes_BN)
    latents_BCN = original.encoder(scaled_BMT)
    outputs = {
        "codes": codes_BN.numpy(),
        "latents": latents_BCN.transpose(1, 2).detach().numpy(),
        "scaled_mel": decoded_BMT.transpose(1, 2).detach().numpy(),
    }
    return formula.save("dvae", shapes, outputs)


def make_hifigan() -> Path:
    from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder

    original = HifiDecoder(decoder_input_dim=HIFIGAN.latent_width)
    shapes = fill(original.waveform_decoder)
    original.eval()
    wave_B1S = original(torch.from_numpy(HIFIGAN.latents()), g=torch.from_numpy(HIFIGAN.speaker()).unsqueeze(-1))
    return formula.save("hifigan", shapes, {"wave": wave_B1S[:, 0].detach().numpy()})


def make_speaker() -> Path:
    from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder

    original = HifiDecoder().speaker_encoder
    shapes = fill(original, keep=("torch_spec",))
    vector_BV = original(torch.from_numpy(SPEAKER.wave()).unsqueeze(1), l2_norm=True)
    return formula.save("speaker", shapes, {"vector": vector_BV.detach().numpy()})


PARTS: dict[str, Callable[[], Path]] = {"dvae": make_dvae, "hifigan": make_hifigan, "speaker": make_speaker}


def main() -> None:
    torch.set_grad_enabled(False)
    for part in sys.argv[1:] or PARTS:
        path = PARTS[part]()
        print(f"{part}: {path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
