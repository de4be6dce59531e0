"""Config section `data`: corpora, batches, and the data device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from myxtts.config.checks import at_least, in_range
from myxtts.config.gpus import GpuIndices, parse_gpu_indices
from myxtts.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How a corpus is read and which clips are refused: the settings of `myxtts prepare`."""

    corpus_format: Literal["auto", "ljspeech", "vctk", "common-voice", "jsonl"] = "auto"
    """Layout of the corpus; auto looks at the folder."""

    language: str = "en"
    """Language of clips whose metadata has no language column (en, fa, de, ...); auto tells each clip's by its text."""

    cache_dir: str | None = None
    """Folder of the prepared shards; by default in the user's cache folder."""

    text_frontend: Literal["phonemes", "characters", "bpe"] = "phonemes"
    """Input tokens of the model: espeak phonemes (best from scratch), characters, or byte-pair pieces (BPE)."""

    vocab_size: int = 2000
    """Size of a byte-pair vocabulary trained on the corpus."""

    min_clip_seconds: float = 0.4
    """Shorter clips are refused."""

    max_clip_seconds: float = 20.0
    """Longer clips are refused."""

    max_text_chars: int = 400
    """Longer transcripts are refused."""

    trim_silence: bool = False
    """Trim silence at both ends of each clip."""

    normalise_loudness: bool = False
    """Normalise each clip to the same loudness."""

    max_refused_share: float = 0.2
    """Preparing stops when a larger share of the clips is refused."""

    def __post_init__(self) -> None:
        at_least("--vocab-size", self.vocab_size, 300, hint="2,000 is a good size for one language")
        at_least("--min-clip-seconds", self.min_clip_seconds, 0.05, hint="the default is 0.4")
        at_least("--max-text-chars", self.max_text_chars, 1, hint="the default is 400")
        in_range("--max-refused-share", self.max_refused_share, 0.0, 1.0, hint="1 accepts any number of refusals")
        defaults = "the defaults are 0.4 and 20 seconds"
        at_least("--max-clip-seconds", self.max_clip_seconds, 0.05, hint=defaults)
        if self.max_clip_seconds <= self.min_clip_seconds:
            raise ConfigError(
                f"--max-clip-seconds is {self.max_clip_seconds}, not above --min-clip-seconds {self.min_clip_seconds}",
                hint=defaults,
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig(CorpusConfig):
    """Corpora, batches, and the data device's side of the pipeline."""

    train_data: str | None = None
    """Folder of recordings to train on (LJSpeech, VCTK, Common Voice or a JSONL manifest)."""

    val_data: str | None = None
    """Folder held out for validation; without it one clip of every 20 of the training folder is held out."""

    extra_tokens: int = 0
    """With --init-from: byte-pair pieces of the corpus to add to the voice's vocabulary; 2,000 suit a new language."""

    batch_size: int | None = None
    """Most clips in a batch; without it and without --batch-seconds, the stage's recipe decides."""

    batch_seconds: float | None = None
    """Most audio seconds in a batch, padding included: batches are filled from buckets of similar length. Beside
    --batch-size, the smaller of the two limits holds."""

    num_workers: int = 0
    """Processes that read shards; 0 reads on threads of this process."""

    buffer_size: int = 50
    """Batches prepared ahead of the model; one of 32 clips costs about 25 MB on the host."""

    data_gpu: GpuIndices = None
    """Data GPU: computes mels, codes and conditioning mels; several ("0,1") share the batches. Needs --model-gpu."""

    model_gpu: GpuIndices = None
    """Model GPU: trains the model; several ("1,2,3") mirror it. Needs --data-gpu."""

    model_start_delay: float = 2.0
    """Longest wait, in seconds, for the buffer to fill before training starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, flag in (("data_gpu", "--data-gpu"), ("model_gpu", "--model-gpu")):
            object.__setattr__(self, name, parse_gpu_indices(flag, getattr(self, name)))
        at_least("--batch-size", self.batch_size, 1, hint="start at 16 and halve it when memory runs out")
        at_least("--batch-seconds", self.batch_seconds, 1.0, hint="120 fits a 12 GB GPU at the normal size")
        at_least("--num-workers", self.num_workers, 0, hint="0 reads on threads of the training process")
        at_least(
            "--buffer-size",
            self.buffer_size,
            1,
            hint="start at 50; raise it only if the stall share stays above 5 %",
        )
        at_least("--extra-tokens", self.extra_tokens, 0, hint="0 adds missing characters only; 2,000 is usual")
        at_least("--model-start-delay", self.model_start_delay, 0.0, hint="the default is 2.0 seconds")
