"""`myxtts evaluate RUN --data CORPUS`: speak held-out sentences and let outside metrics score them."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.progress import counted
from myxtts.cli.synth import current_flags, read_texts
from myxtts.config.checks import at_least, check_seed
from myxtts.errors import DataError, SynthesisError, UsageError
from myxtts.files import writing
from myxtts.monitoring.log import setup_speaking_log
from myxtts.monitoring.terminal import escaped
from myxtts.text.languages import find_language

if TYPE_CHECKING:
    from myxtts.data.prepared import PreparedCorpus
    from myxtts.evaluation.evaluate import Speaking


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Score a voice: intelligibility, speaker similarity, naturalness, beside the codec's ceiling and the real clips.

    The metrics are an extra, `eval`. One that is missing is named and left out, with how to install it.

    Examples:
      myxtts evaluate runs/mine --data DIR
      myxtts evaluate runs/mine --data DIR --texts FILE --language fa   (texts of your own, one a line)
    """

    voice: Annotated[Path, tyro.conf.Positional]
    """A run folder or a voice folder; of a run that has trained its codec only, that is evaluated."""

    data: Path
    """Corpus with the real clips; those that training held out are spoken. For a run with --val-data, that folder."""

    limit: int = 40
    """Most utterances."""

    all_clips: bool = False
    """Take all clips of the corpus, for one that was never trained on."""

    texts: Path | None = None
    """File of texts to speak in the corpus's voices, one a line, instead of its held-out sentences."""

    language: str = "en"
    """Language of --texts."""

    asr: str = "moonshine"
    """The recogniser: moonshine, none, or one of your own as package.module:factory."""

    phones: bool = True
    """Count phone errors too, where the corpus has a phonemes.csv; trains a recogniser on its clips on first use."""

    out: Path | None = None
    """Folder for evaluation.json, evaluation.html and the sounds; by default that of the run or voice."""

    seed: int = 0
    """The same seed speaks the same."""

    hallucination_checks: bool = True
    """Detect loops, skips and speech that does not stop, as synth does; without them the model alone is evaluated."""

    simulate_gpus: int = 0
    """Let this many CPU devices stand for GPUs."""

    debug: bool = False
    """Show the traceback of an error."""


OPTIONS = EvaluateOptions


def main(argv: list[str]) -> int:
    options = parse_options(EvaluateOptions, current_flags(argv), command="evaluate")
    all_clips = refuse_early(options)
    texts = None if options.texts is None else texts_to_speak(options.texts, options.limit)
    setup_speaking_log()
    logging.getLogger("myxtts.synthesis.hallucinations").setLevel(logging.ERROR)
    # Before TensorFlow and the metrics are loaded: errors of the corpus are shown at once.
    prepared = prepared_for(options.voice, options.data, held_out=texts is None and not all_clips)
    synthesizer = open_evaluated(options.voice, options.simulate_gpus)
    from myxtts.evaluation.items import held_out_items, text_items
    from myxtts.evaluation.metrics import add_phone_metric, find_metrics, refuse_without_metrics
    from myxtts.evaluation.run import evaluate_into
    from myxtts.synthesis.hallucinations import HallucinationChecks
    from myxtts.synthesis.options import SpeakingOptions

    metrics = find_metrics(options.asr)
    counts_phones = options.phones and (options.data / "phonemes.csv").is_file()
    if not counts_phones:
        refuse_without_metrics(metrics)
    if counts_phones:
        cache, learning = options.out or options.voice, counted("training the phone recogniser, step")
        add_phone_metric(metrics, options.data, prepared, cache, learning)
    if texts is not None:
        items = text_items(prepared, texts, find_language(options.language).code)
    else:
        items = held_out_items(prepared, options.limit, all_clips=all_clips)
        if note := note_of_left_out(len(items), len(prepared), options.limit):
            print(note, file=sys.stderr)
    result = evaluate_into(
        options.out or options.voice,
        _title(options.voice, synthesizer),
        synthesizer,
        metrics,
        items,
        _about(options),
        SpeakingOptions(seed=options.seed, checks=HallucinationChecks() if options.hallucination_checks else None),
        progress=counted("evaluated"),
    )
    print(escaped(result.table))
    for line in result.notes:
        print(escaped(f"  {line}"))
    print(f"Scores: {result.json}\nReport: {result.page}")
    return 0


def _title(voice: Path, synthesizer: Speaking) -> str:
    name = voice.resolve().name
    return f"How {name} speaks" if synthesizer.speak is not None else f"How the codec of {name} sounds"


def open_evaluated(voice: Path, simulate_gpus: int) -> Speaking:
    """The voice; its codec alone where its GPT is not trained yet."""
    from myxtts.synthesis.opening import configure_device, open_voice
    from myxtts.synthesis.voice import find_voice, is_exported

    if is_exported(find_voice(voice)):
        return open_voice(voice)
    if not is_codec_alone(voice):
        # An export has no codec to compare with.
        return open_voice(voice, runtime="tensorflow", simulate_gpus=simulate_gpus)
    device = configure_device(simulate_gpus)
    import tensorflow as tf

    from myxtts.evaluation.evaluate import CodecAlone
    from myxtts.synthesis.tensorflow_model import load_codec

    print(f"note: the gpt of {voice} is not trained yet: its codec alone is evaluated", file=sys.stderr)
    with tf.device(device):
        return CodecAlone(load_codec(voice))


def is_codec_alone(voice: Path) -> bool:
    """Whether clips can go through the voice's codec and no text can be spoken yet."""
    from myxtts.synthesis.voice import find_voice, missing_to_speak, voice_manifest

    parts = voice_manifest(find_voice(voice)).parts
    return "dvae" in parts and bool(missing_to_speak(parts))


def _about(options: EvaluateOptions) -> dict[str, str | int | bool]:
    """What the scores are of, for whoever reads them later."""
    return {
        "voice": str(options.voice),
        "data": str(options.data),
        "seed": options.seed,
        "hallucination_checks": options.hallucination_checks,
    }


def prepared_for(voice: Path, data: Path, *, held_out: bool) -> PreparedCorpus:
    """The corpus, prepared as the voice's was; raises where held-out clips are asked for that it was trained on."""
    from myxtts.data.prepare import prepare
    from myxtts.evaluation.items import refuse_other_clips
    from myxtts.synthesis.voice import find_voice, read_voice_config, voice_manifest

    folder = find_voice(voice)
    config = read_voice_config(folder).data
    prepared = prepare(data, config)
    if held_out:
        refuse_other_clips(config, data, trained_on=voice_manifest(folder).trained_on, now=prepared.clip_list)
    return prepared


def texts_to_speak(path: Path, limit: int) -> list[str]:
    """The first lines of a file; prints how many are left out."""
    texts = read_texts((), path, flag="--texts")
    if len(texts) > limit:
        left = len(texts) - limit
        print(f"note: {left} of {len(texts)} texts are left out: --limit {len(texts)} takes all", file=sys.stderr)
    return texts[:limit]


def note_of_left_out(taken: int, clips: int, limit: int) -> str | None:
    """What is said where fewer clips are spoken than there are and --limit allows."""
    if taken >= min(clips, limit):
        return None
    return (
        f"note: {taken} of {clips} clips are spoken, those that training holds out of its corpus; "
        "--all-clips takes all, for a corpus that it was not trained on"
    )


def refuse_early(options: EvaluateOptions) -> bool:
    """Whether all clips are to be taken; raises what can be known to be wrong before TensorFlow is loaded."""
    from myxtts.evaluation.items import holds_all_out
    from myxtts.synthesis.voice import find_voice, read_voice_config, trained_on_all_clips

    at_least("--limit", options.limit, 1, hint="40 gives a first answer")
    at_least("--simulate-gpus", options.simulate_gpus, 0, hint="0 uses the devices that are there")
    check_seed(options.seed)
    find_language(options.language)
    if options.all_clips and options.texts is not None:
        raise UsageError(
            "--all-clips and --texts exclude each other", hint="--texts speaks its own lines, and no clips"
        )
    if not options.data.exists():
        raise DataError(f"--data {options.data} is not there", hint="name the folder of a corpus: docs/your-data.md")
    folder = find_voice(options.voice)
    if options.texts is not None and is_codec_alone(options.voice):
        raise SynthesisError(
            f"--texts cannot be spoken: the gpt of {options.voice} is not trained yet",
            hint="leave --texts out to evaluate its codec, or train its gpt stage first",
        )
    if options.out is not None:
        with writing(options.out):
            options.out.mkdir(parents=True, exist_ok=True)
    if options.all_clips or options.texts is not None:
        return options.all_clips
    return holds_all_out(read_voice_config(folder).data, options.data, trained_on_all=trained_on_all_clips(folder))
