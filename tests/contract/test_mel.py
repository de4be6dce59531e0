"""The mel against librosa, clip by clip, and Griffin-Lim as its inverse."""

from __future__ import annotations

import librosa
import numpy as np
import pytest
import tensorflow as tf

from myxtts.audio.griffin_lim import griffin_lim, linear_magnitude
from myxtts.audio.mel import (
    CONDITIONING_MEL,
    DVAE_MEL,
    N_MELS,
    SPEAKER_MEL,
    MelSettings,
    MelSpectrogram,
    frame_count,
    mel_filterbank,
)
from myxtts.audio.numpy_mel import log_mel
from myxtts.errors import ConfigError

SETTINGS = {
    "dvae": DVAE_MEL,
    "conditioning": CONDITIONING_MEL,
    "speaker": SPEAKER_MEL,
    "slaney": MelSettings(mel_scale="slaney"),
}
# Longer than the FFT, a whole number of hops, and shorter than the reflection that they need.
LENGTHS = [30000, 10240, 5000, 700, 513, 512, 300, 2, 1]


def speechlike(samples: int, seed: int) -> np.ndarray:
    """Harmonics that glide, with pauses and a little noise: 80 dB between loud and quiet."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(samples) / 22050
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * time_s)) / 22050
    wave = sum(np.sin(k * phase) / k for k in range(1, 30)) * (np.sin(3 * time_s) > -0.5)
    return (0.1 * wave + 1e-4 * rng.standard_normal(samples)).astype(np.float32)


def librosa_log_mel(wave: np.ndarray, settings: MelSettings) -> np.ndarray:
    half = settings.n_fft // 2
    # librosa refuses to reflect clips shorter than half a window; numpy does it as XTTS would.
    padded = np.pad(wave, half, mode="reflect" if len(wave) > 1 else "edge")
    power = librosa.feature.melspectrogram(
        y=padded,
        sr=settings.sample_rate,
        n_fft=settings.n_fft,
        hop_length=settings.hop_samples,
        win_length=settings.win_samples,
        window=settings.window,
        center=False,
        power=2.0,
        n_mels=settings.n_mels,
        fmin=settings.f_min_hz,
        fmax=settings.f_max_hz,
        htk=settings.mel_scale == "htk",
        norm="slaney" if settings.area_norm else None,
    )
    return np.log(np.maximum(power, settings.floor)).T


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_clip_of_a_batch_agrees_with_librosa_whatever_lies_beside_it(name: str, whole: bool) -> None:
    settings = SETTINGS[name]
    clips = [speechlike(length, seed) for seed, length in enumerate(LENGTHS)]
    padded = np.full((len(clips), 32000), 0.9, np.float32)
    for row, clip in zip(padded, clips, strict=True):
        row[: len(clip)] = clip

    mel_BTM, lengths_B = MelSpectrogram(settings, whole=whole)(padded, LENGTHS)

    assert mel_BTM.shape == (len(clips), 32000 // settings.hop_samples + 1, settings.n_mels)
    for mel_TM, length, clip in zip(mel_BTM.numpy(), lengths_B.numpy(), clips, strict=True):
        expected = librosa_log_mel(clip, settings)
        assert length == len(expected) == frame_count(len(clip), settings.hop_samples)
        np.testing.assert_allclose(mel_TM[:length], expected, atol=1e-4)
        np.testing.assert_allclose(mel_TM[length:], np.log(settings.floor), atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_filters_are_those_of_librosa(name: str) -> None:
    s = SETTINGS[name]
    expected = librosa.filters.mel(
        sr=s.sample_rate,
        n_fft=s.n_fft,
        n_mels=s.n_mels,
        fmin=s.f_min_hz,
        fmax=s.f_max_hz,
        htk=s.mel_scale == "htk",
        norm="slaney" if s.area_norm else None,
    )

    np.testing.assert_allclose(mel_filterbank(s), expected.T, atol=1e-6)


def test_int16_waves_give_the_mels_of_their_floats() -> None:
    pcm = (speechlike(20000, 3) * 32767).astype(np.int16)[None]

    from_int, _ = MelSpectrogram()(pcm, [20000])
    from_float, _ = MelSpectrogram()(pcm.astype(np.float32) / 32768, [20000])

    np.testing.assert_allclose(from_int, from_float, atol=1e-6)


def test_one_mel_serves_all_batch_shapes_with_few_traces() -> None:
    mel = MelSpectrogram()

    for batch, samples in ((1, 4000), (2, 5000), (3, 6000), (5, 7000), (2, 9000)):
        mel(np.zeros((batch, samples), np.float32), [samples] * batch)

    assert mel._compiled.experimental_get_tracing_count() <= 2


def test_an_empty_clip_in_a_batch_is_silence() -> None:
    mel_BTM, lengths_B = MelSpectrogram()(np.full((2, 3000), 0.5, np.float32), [0, 3000])

    assert lengths_B.numpy().tolist() == [1, 12]
    np.testing.assert_allclose(mel_BTM[0], np.log(1e-5), atol=1e-5)


def test_channel_norms_divide_the_log_mel() -> None:
    wave = speechlike(9000, 1)[None]
    norms = np.linspace(1.0, 3.0, 80)

    plain, _ = MelSpectrogram()(wave, [9000])
    normed, _ = MelSpectrogram(channel_norms=norms)(wave, [9000])

    np.testing.assert_allclose(normed * norms.astype(np.float32), plain, rtol=1e-5)


@pytest.mark.parametrize("norms", [[1.0] * 79, [0.0] * 80, [float("nan")] * 80])
def test_unusable_channel_norms_are_refused(norms: list[float]) -> None:
    with pytest.raises(ConfigError, match="channel_norms"):
        MelSpectrogram(channel_norms=norms)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="win_samples"):
        MelSettings(win_samples=4096)
    with pytest.raises(ConfigError, match="16000"):
        MelSettings(f_max_hz=16000)


def test_the_mel_can_be_compiled_by_xla() -> None:
    mel = MelSpectrogram(whole=True)
    wave = speechlike(8192, 2)[None]

    compiled = tf.function(mel.log_mel, jit_compile=True)(tf.constant(wave), tf.constant([8192]))

    np.testing.assert_allclose(compiled[0], mel(wave, [8192])[0], atol=1e-4)


def test_a_whole_mel_has_gradients() -> None:
    wave = tf.constant(speechlike(4096, 2)[None])

    with tf.GradientTape() as tape:
        tape.watch(wave)
        mel_BTM, _ = MelSpectrogram(whole=True).log_mel(wave, tf.constant([4096]))
        loss = tf.reduce_mean(mel_BTM)

    assert float(tf.norm(tape.gradient(loss, wave))) > 0


def test_a_batch_of_many_pieces_equals_its_clips_alone() -> None:
    lengths = [100_000, 40_000, 90_001, 256]
    padded = np.zeros((4, 100_000), np.float32)
    for row, length in enumerate(lengths):
        padded[row, :length] = speechlike(length, row)
    mel = MelSpectrogram()

    together, frames = mel(padded, lengths)

    for row, length in enumerate(lengths):
        alone, _ = mel(padded[row : row + 1, :length], [length])
        np.testing.assert_allclose(together[row, : frames[row]], alone[0], atol=1e-5)


def missed(wave_S: np.ndarray, mel_TM: np.ndarray) -> float:
    """How far the mel of a rebuilt wave is from the mel that it was built of; ends are not counted."""
    return float(np.abs(log_mel(wave_S, DVAE_MEL)[2:-2] - mel_TM[2:-2]).mean())


@pytest.mark.parametrize(("samples", "seed"), [(20480, 0), (12800, 1)])
def test_griffin_lim_gives_back_the_mel_it_was_given(samples: int, seed: int) -> None:
    wave_S = speechlike(samples, seed)
    mel_TM = log_mel(wave_S, DVAE_MEL)

    rebuilt_S = griffin_lim(mel_TM)

    assert (rebuilt_S.dtype, rebuilt_S.shape) == (np.float32, (samples,))
    # Random phases without rounds miss by about 0.8; white noise by more than 2.
    assert missed(rebuilt_S, mel_TM) < 0.45
    np.testing.assert_allclose(rebuilt_S.std(), wave_S.std(), rtol=0.2)
    np.testing.assert_array_equal(griffin_lim(mel_TM), rebuilt_S)


def test_griffin_lim_rounds_bring_it_closer() -> None:
    mel_TM = log_mel(speechlike(20480, 5), DVAE_MEL)

    assert missed(griffin_lim(mel_TM), mel_TM) < 0.8 * missed(griffin_lim(mel_TM, rounds=0), mel_TM)


def test_griffin_lim_follows_a_tone_from_its_first_guess() -> None:
    seconds = np.arange(22050) / 22050
    mel_TM = log_mel(np.sin(2 * np.pi * 440 * seconds).astype(np.float32) / 2, DVAE_MEL)

    spectrum = np.abs(np.fft.rfft(griffin_lim(mel_TM, rounds=0)))

    # A second of a tone whose phases go on is a line of one hertz; with random phases it is as wide as a window's.
    peak = int(spectrum.argmax())
    assert abs(peak - 440) < 15
    assert np.square(spectrum[peak - 4 : peak + 5]).sum() > 0.5 * np.square(spectrum).sum()


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 129, 257])
def test_griffin_lim_takes_a_mel_of_any_length(frames: int) -> None:
    mel_TM = np.full((frames, N_MELS), np.log(1e-5), np.float32)

    wave_S = griffin_lim(mel_TM)

    assert wave_S.shape == ((frames - 1) * 256,)
    assert np.isfinite(wave_S).all()
    assert np.abs(wave_S).max(initial=0.0) < 0.01


def test_linear_magnitudes_have_the_mel_they_were_made_of() -> None:
    mel_TM = log_mel(speechlike(20480, 2), DVAE_MEL)

    power_TF = np.square(linear_magnitude(mel_TM))

    assert power_TF.min() >= 0
    again_TM = np.log(np.maximum(power_TF @ mel_filterbank()[: power_TF.shape[1]], DVAE_MEL.floor))
    assert np.abs(again_TM - mel_TM).mean() < 0.25  # three rounds would leave 0.33
