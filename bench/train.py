"""Training end to end: audio-seconds learnt for each CPU-second, stage gpt, small size, on one thread.

Both sides learn the same clips, whose lengths are Kathleen's, in batches of as many clips, from reading to the
optimiser's step. Ours: shards, planned batches, mel, frozen DVAE, references, alignment heads, the trainer itself.
Coqui's: its own trainer and data set (`bench/coqui_training.py`). With `--corpus DIR` both learn that instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import HERE, Others, answer_turns, peer_python, sides
from bench.peers import SMALL
from bench.report import Report, Row, at_least, finish, parser_for, run_main
from bench.speechlike import kathleen_lengths_s, make_corpus

CLIPS_A_BATCH = 16
CORPUS_CLIPS = 592
COQUI_REFERENCE_SECONDS = 6.0
"""What Coqui pads every reference to; ours takes 3 or 1.5 seconds, so a second row asks for as much as Coqui."""


def main(argv: list[str]) -> int:
    parser = parser_for("train", __doc__)
    parser.add_argument("--corpus", type=Path, help="a folder of recordings instead of noise of Kathleen's lengths")
    parser.add_argument("--batches", type=int, default=12, help="batches of a round")
    parser.add_argument("--ours-side", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reference-seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.ours_side:
        ours_side(arguments.ours_side, arguments.reference_seconds, arguments.batches)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return finish(compare(arguments, Path(folder)), arguments.json)


def compare(arguments: argparse.Namespace, scratch: Path) -> Report:
    prepared = prepare_both(arguments.corpus, scratch)
    batches, rounds = (3, 1) if arguments.quick else (arguments.batches, arguments.rounds)
    mine = [sys.executable, "-m", "bench.train", "--ours-side", str(prepared), f"--batches={batches}"]
    peer = peer_python()
    layers, width, heads = SMALL
    sizes = [f"--layers={layers}", f"--width={width}", f"--heads={heads}"]
    theirs = [str(peer), str(HERE / "coqui_training.py"), str(scratch / "clips.json"), *sizes]
    commands = {
        "ours": mine,
        "same references": None if arguments.quick else [*mine, f"--reference-seconds={COQUI_REFERENCE_SECONDS}"],
        "coqui": [*theirs, f"--clips={CLIPS_A_BATCH}", f"--batches={batches}"] if peer else None,
    }
    with sides(commands) as living:
        others = Others()
        made = {name: [] for name in living}
        for _ in range(rounds):
            for name, side in living.items():
                made[name].append(side.turn())
        others_cores = others.cores()
    return Report(
        name="train",
        rows=rows_of(made),
        others_cores=others_cores,
        quick=arguments.quick,
        context=context_of(made),
    )


def rows_of(made: dict[str, list[dict[str, float]]]) -> list[Row]:
    def rates(name: str) -> list[float]:
        return [one["audio_per_cpu_s"] for one in made[name]]

    common: dict[str, Any] = {"unit": "audio-s per CPU-s"}
    target = None
    if "coqui" in made:
        # No figure is stored for Coqui's: without it there is no ratio, and so no target.
        common |= {"peer": rates("coqui"), "peer_name": "Coqui"}
        target = at_least(1.5)
    rows = [Row(name="training, each as shipped", ours=rates("ours"), target=target, **common)]
    if "same references" in made:
        rows.append(Row(name="training, references of 6 s in both", ours=rates("same references"), **common))
    return rows


def context_of(made: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def median(name: str, what: str) -> float:
        return round(statistics.median(one[what] for one in made[name]), 3)

    kinds = ("producer_share", "padding_share", "cpu_s_per_step")
    return {f"{name}, {what}": median(name, what) for name in made for what in kinds}


def prepare_both(corpus: Path | None, scratch: Path) -> Path:
    """Shards for ours; for Coqui a list of the same clips with the same tokens."""
    from myxtts.config.data import DataConfig
    from myxtts.data.corpora import list_corpus
    from myxtts.data.prepare import prepare

    source = corpus if corpus is not None else make_corpus(scratch / "clips", kathleen_lengths_s(CORPUS_CLIPS))
    prepared = prepare(source, DataConfig(cache_dir=str(scratch / "cache"), max_refused_share=0.5))
    paths = {entry.id: str(entry.audio.path) for entry in list_corpus(source).entries}
    clips = []
    for number in range(len(prepared)):
        record = prepared.read(number)
        # Coqui keeps 0 for its stop token and refuses 1; ours are small numbers of a small vocabulary.
        tokens = [int(token) + 10 for token in record.tokens]
        clips.append({"audio_file": paths[record.id], "tokens": tokens})
    (scratch / "clips.json").write_text(json.dumps(clips))
    return prepared.path


def ours_side(path: Path, reference_seconds: float | None, batches_a_round: int) -> None:
    """Learns in turns; every trace is made before the first."""
    import time

    from myxtts.data.prepared import open_prepared

    training = Training(open_prepared(path), reference_seconds)

    def turn(_order: str) -> dict[str, float]:
        training.pipeline.telemetry.window()
        began = time.process_time()
        for _ in range(batches_a_round):
            training.step()
        cpu_s = time.process_time() - began
        window = training.pipeline.telemetry.window()
        assert window.audio_seconds_per_s is not None
        process, learn = (window.phases[phase].busy for phase in ("process", "train"))
        return {
            "audio_per_cpu_s": window.audio_seconds_per_s * window.seconds / cpu_s,
            "producer_share": process / (process + learn),
            "padding_share": window.padding_share or 0.0,
            "cpu_s_per_step": cpu_s / batches_a_round,
        }

    with training.pipeline:
        # Shapes that differ are traced once more, then no more.
        for _ in range(2 if batches_a_round < 4 else 4):
            training.step()
        answer_turns({"ready": True}, turn)


class Training:
    """The gpt stage as `myxtts train` runs it, with alignments that are made up: finding them is a stage of its own."""

    def __init__(
        self,
        prepared: Any,
        reference_seconds: float | None = None,
        *,
        size: str = "small",
        clips_a_batch: int = CLIPS_A_BATCH,
        trainer: Any = None,
        alignments: Any = None,
        team: Any = None,
    ) -> None:
        """A `trainer` that has learnt before brings its compiled functions along. With a `team` this is one of several
        model workers, each of which has its rows of every batch."""
        from myxtts.pipeline import SequentialPipeline
        from myxtts.training.stage_data import size_of
        from myxtts.training.team import OwnRows

        self.trainer = trainer or _new_trainer(prepared, size, clips_a_batch)
        self.batch_bytes = 0
        """Of the batch learnt last, as it travels from the data device to the model's."""
        plan = self.trainer.plan
        source = self._source(prepared, reference_seconds, alignments or even_alignments(prepared))
        self.pipeline = SequentialPipeline(
            source if team is None else OwnRows(source, team),
            self.trainer.producers,
            model_devices=[role.name for role in plan.models],
            host_buffer_size=2,
            measure=size_of,
        )

    def _source(self, prepared: Any, reference_seconds: float | None, alignments: Any) -> Any:
        from myxtts.data.augmentation import Augmentation
        from myxtts.data.batching import batches

        clips, _ = prepared.split()
        seconds = reference_seconds or self.trainer.recipe.reference_seconds
        augmentation = Augmentation(reference_seconds=seconds, alignments=alignments)
        return batches(prepared, config=self.trainer.config.data, seed=0, clips=clips, augmentation=augmentation)

    def step(self) -> float:
        """Learn one batch; its seconds, padding included."""
        return float(self.step_sized().padded_seconds)

    def step_sized(self) -> Any:
        """Learn one batch; its size."""
        batch = next(self.pipeline)
        self.batch_bytes = sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in batch.tensors.values())
        self.trainer.learn([batch])
        return batch.size


def _new_trainer(prepared: Any, size: str, clips_a_batch: int) -> Any:
    """At the first step of stage gpt, from scratch."""
    from myxtts.config.config import XTTSConfig
    from myxtts.config.data import DataConfig
    from myxtts.config.model import ModelConfig
    from myxtts.training.trainer import XTTSTrainer

    # The preset's vocabulary, which is XTTS's, unless the corpus has more tokens than that.
    vocabulary = max(ModelConfig(model_size=size).text_vocab, prepared.tokenizer.size)
    model = ModelConfig(model_size=size, text_vocab=vocabulary)
    trainer = XTTSTrainer(XTTSConfig(model=model, data=DataConfig(batch_size=clips_a_batch)))
    trainer.start_stage("gpt")
    trainer.current_stage().initialise(0)
    return trainer


def even_alignments(prepared: Any) -> Any:
    """Every token of a clip spoken equally long."""
    import numpy as np

    from myxtts.data.alignments import Alignments, codes_of

    codes = codes_of(np.asarray(prepared.index.wave_samples, np.int64))
    texts = np.asarray(prepared.index.text_tokens, np.int64)
    starts = np.concatenate([[0], np.cumsum(codes)])
    tokens = np.empty(starts[-1], np.uint16)
    # Some clips at a time: a million have 65 million codes.
    for first in range(0, len(codes), 10_000):
        some = slice(first, min(first + 10_000, len(codes)))
        clip = np.repeat(np.arange(some.start, some.stop), codes[some])
        within = np.arange(starts[some.start], starts[some.stop]) - starts[clip]
        tokens[starts[some.start] : starts[some.stop]] = within * texts[clip] // codes[clip]
    return Alignments(tokens, starts)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
