"""A synthesizer speaks where there is no TensorFlow, with a runtime of its own: for `tests/unit/test_opening.py`."""

from __future__ import annotations

import sys
from typing import Any

sys.modules["tensorflow"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402

from myxtts.config.config import XTTSConfig  # noqa: E402
from myxtts.synthesis.manifest import VoiceManifest  # noqa: E402
from myxtts.synthesis.references import Speaker, VoiceLatents  # noqa: E402
from myxtts.synthesis.speech_model import Generated, TextBatch  # noqa: E402
from myxtts.synthesis.synthesizer import Synthesizer  # noqa: E402
from myxtts.synthesis.voice import Voice  # noqa: E402
from myxtts.text.tokenizer import train_tokenizer  # noqa: E402


class Tones:
    """Two codes for each token, read from left to right; each code is 46 ms of a tone."""

    sample_rate, decoder_name, max_codes, codec = 22050, "tones", 500, None

    def encode_reference(self, clips: Any, windows: Any) -> VoiceLatents:
        return VoiceLatents(np.full((2, 4), len(windows), np.float32), None)

    def generate(self, texts: TextBatch) -> Generated:
        counts = 2 * np.asarray(texts.lengths_B)
        most, rows = int(counts.max()), len(counts)
        codes_BN = np.tile(np.arange(most, dtype=np.int32), (rows, 1))
        return Generated(codes_BN, counts, np.ones(rows, bool), np.zeros((rows, most, 4), np.float32), codes_BN // 2)

    def stream(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("no streaming decoder was offered")

    def decode(self, made: Any, text_tokens: Any, speaker_V: Any, speed: float) -> Any:
        return np.sin(np.arange(len(made.codes_N) * 1024) / 10).astype(np.float32)

    def spoken_mel(self, made: Any, text_tokens: Any, speaker_V: Any) -> None:
        return None

    def streaming_decoder(self, speaker_V: Any) -> None:
        return None


def main() -> None:
    wave = (4000 * np.sin(np.arange(44100) / 7)).astype(np.int16)
    voice = Voice(
        manifest=VoiceManifest(parts=("conditioning", "gpt"), languages=("en",)),
        config=XTTSConfig(model_size="tiny"),
        tokenizer=train_tokenizer("characters", [("hello there", "en")]),
        sha256="",
        speakers={"anna": Speaker("anna", "en", wave)},
    )
    synthesizer = Synthesizer(voice, Tones())
    speech = synthesizer.speak("Hello there.")
    assert [word.word for word in speech.words] == ["Hello", "there."], speech.words
    assert 0 < speech.words[1].start_s < speech.seconds, speech.words
    assert speech.report.decoder == "tones", speech.report
    assert not speech.report.lines(), speech.report
    streamed = np.concatenate([piece.wave for piece in synthesizer.stream("Hello there.")])
    assert np.array_equal(streamed, speech.wave)
