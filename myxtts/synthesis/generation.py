"""Autoregressive generation: codes and latents from text and voice latents, with a KV cache, in one compiled loop.

The prompt is prefilled once; every decode step costs one row of matrix products. The cache grows by `GROWTH`
positions at a time, so attention never reads far beyond what was written, and a step writes its one row in place.
The prefill computes as the GPT does, in 16 bits or 32; decode steps are float32. A row's result depends on its own
text, voice and seed, not on the batch around it. Sizes in names: B batch, L latents, U text positions, P prompt
positions, C cache positions, N codes, V audio vocabulary, D width, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.errors import ConfigError
from myxtts.models.attention import attention_probabilities
from myxtts.models.decode_step import (
    Place,
    StepWeights,
    block_step,
    cache_of,
    cache_shape,
    grown_cache,
    predict,
    read_weights,
    room_of,
)
from myxtts.models.gpt import GPT, AlignmentHeads
from myxtts.models.layers import MASKED, length_mask, normalised, on_cpu
from myxtts.synthesis.numpy_sampling import per_row
from myxtts.synthesis.sampling import SamplingTensors, penalise, random_numbers, sample, sampling_tensors
from myxtts.synthesis.speech_model import Generated, TextBatch

GROWTH = 64


class Request(NamedTuple):
    """What stays the same during a generation.

    With classifier-free guidance the batch is doubled: the second half of the rows has no text, makes the unconditional
    logits, and continues with the codes that are sampled for the first half.
    """

    text_lengths_B: tf.Tensor
    text_width: tf.Tensor
    """Tokens of the longest text."""
    uniform_NB1: tf.Tensor
    min_codes_B1: tf.Tensor
    max_codes_B: tf.Tensor
    sampling: SamplingTensors
    guidance: tf.Tensor | None
    """Scale of classifier-free guidance; None where it is off and there are no unconditional rows."""

    def guided(self, logits_BV: tf.Tensor) -> tf.Tensor:
        """The logits to sample from, one row for each text."""
        if self.guidance is None:
            return logits_BV
        conditional_BV, unconditional_BV = tf.split(logits_BV, 2)
        return unconditional_BV + self.guidance * (conditional_BV - unconditional_BV)

    def for_all_rows(self, sampled_B: tf.Tensor) -> tf.Tensor:
        """What was sampled for each text, for its unconditional row too."""
        return sampled_B if self.guidance is None else _twice(sampled_B)


class State(NamedTuple):
    """What a decode step changes."""

    step: tf.Tensor
    finished_B: tf.Tensor
    lengths_B: tf.Tensor
    stopped_B: tf.Tensor
    penalty_BV: tf.Tensor
    """1, or the repetition penalty for codes that were generated already."""
    hidden_BD: tf.Tensor
    """Normalised hidden state that predicts the next code."""
    spoken_B: tf.Tensor
    blocked_BC: tf.Tensor
    """0 where a step may attend and large at the padding of the prompt."""
    caches_Rd: tuple[tf.Tensor, ...]
    """Each layer's keys and values."""


class Record(NamedTuple):
    """What the steps made, one entry a step."""

    codes: tf.TensorArray
    latents: tf.TensorArray
    spoken: tf.TensorArray


class Generator:
    """Generation with one GPT; keeps the compiled loops, reads the weights anew at every call."""

    def __init__(self, gpt: GPT, *, alignment_heads: AlignmentHeads = ()) -> None:
        self.gpt = gpt
        self.heads = tuple((int(layer), int(head)) for layer, head in alignment_heads)
        for layer, head in self.heads:
            if not (0 <= layer < gpt.config.gpt_layers and 0 <= head < gpt.config.gpt_heads):
                raise ConfigError(
                    f"alignment head ({layer}, {head}) is not in a GPT of {gpt.config.gpt_layers} layers "
                    f"with {gpt.config.gpt_heads} heads",
                    hint="layers and heads are counted from 0",
                )
        self._whole = tf.function(self._generate, reduce_retracing=True, autograph=False)
        self._begin = tf.function(self._prefill, reduce_retracing=True, autograph=False)
        self._chunk = tf.function(self._advance_chunk, reduce_retracing=True, autograph=False)

    @property
    def max_codes(self) -> int:
        """Most codes that one text can have."""
        return int(self.gpt.config.max_audio_tokens)

    def generate(self, texts: TextBatch, *, min_codes: int | Sequence[int] = 0) -> Generated:
        """Codes until every row has stopped or is at its limit.

        `min_codes` is one number, or one for each text. Raises `ConfigError` where the texts do not fit the GPT.
        """
        inputs, request = new_request(self.gpt, texts, min_codes)
        lengths, stopped, *made = self._call(self._whole, *inputs, request)
        return _generated(request, lengths.numpy(), stopped.numpy(), *made)

    def stream(self, texts: TextBatch, *, chunk: int = 20, min_codes: int | Sequence[int] = 0) -> Iterator[Generated]:
        """The same codes as `generate`, `chunk` at a time as they are made; lengths are those of the chunk."""
        if chunk < 1:
            raise ConfigError(f"a chunk of {chunk} codes was asked for", hint="20 codes are about one second")
        inputs, request = new_request(self.gpt, texts, min_codes)
        state = self._call(self._begin, *inputs, request)
        before: Any = 0
        while not bool(tf.reduce_all(state.finished_B)):
            state, *made = self._call(self._chunk, state, request, tf.constant(chunk))
            lengths = state.lengths_B.numpy()
            yield _generated(request, lengths - before, state.stopped_B.numpy(), *made)
            before = lengths

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Run the function on TensorFlow's single-threaded executor, except on a GPU.

        The default one looks for operations that could run in parallel and passes every tensor of the loop through
        operations of its own in every turn: a quarter of a step that is one chain of small operations.
        """
        executor = "SINGLE_THREADED_EXECUTOR" if on_cpu(self.gpt.audio_head.kernel) else ""
        with tf.experimental.function_executor_type(executor):
            return function(*arguments)

    @property
    def traces(self) -> int:
        """How often the whole loop was compiled."""
        return int(self._whole.experimental_get_tracing_count())

    def _generate(self, latents_BLD: tf.Tensor, text_BU: tf.Tensor, request: Request) -> tuple[tf.Tensor, ...]:
        state = self._prefill(latents_BLD, text_BU, request)
        most = tf.reduce_max(request.max_codes_B)
        record = _new_record(most)

        def grow_and_advance(state: State, record: Record) -> tuple[State, Record]:
            until = tf.minimum(state.step + GROWTH, most)
            return self._advance(state, record, request, until, tf.zeros([], tf.int32))

        state, record = tf.while_loop(
            lambda state, record: ~tf.reduce_all(state.finished_B) & (state.step < most),
            grow_and_advance,
            (state, record),
            shape_invariants=(_loop_shapes(state), Record(*(tf.TensorShape(None),) * 3)),
        )
        return (state.lengths_B, state.stopped_B, *_stacked(record, state.step))

    def _advance_chunk(self, state: State, request: Request, chunk: tf.Tensor) -> tuple[Any, ...]:
        first = state.step
        record = _new_record(chunk)
        state, record = self._advance(state, record, request, first + chunk, first)
        return (state, *_stacked(record, state.step - first))

    def _prefill(self, latents_BLD: tf.Tensor, text_BU: tf.Tensor, request: Request) -> State:
        """Compute latents, text and the start token at once; the state then predicts the first code."""
        gpt = self.gpt
        batch = tf.shape(text_BU)[0]
        text_in = gpt.text_inputs(text_BU, request.text_lengths_B)
        start = tf.fill([batch, 1], gpt.audio_start)
        latents_BLD = tf.cast(latents_BLD, gpt.compute_dtype)
        x_BPD = tf.concat([latents_BLD, gpt.embed_text(text_in), gpt.embed_audio(start)], 1)
        text_mask_BU = length_mask(request.text_lengths_B + 2, tf.shape(text_in)[1])
        bias = gpt.attention_bias(latents_BLD.shape[1], text_mask_BU, 1, x_BPD.dtype)
        caches, attention = [], []
        for layer, block in enumerate(gpt.blocks):
            x_BPD, query, key, value = block(x_BPD, [bias], None, site=0)
            caches.append(tf.cast(cache_of(key, value), tf.float32))
            for head in (head for at, head in self.heads if at == layer):
                attention.append(attention_probabilities(query[:, head, -1:], key[:, head], bias[:, 0, -1:])[:, 0])
        text = tf.shape(text_BU)[1]
        return State(
            step=tf.zeros([], tf.int32),
            finished_B=request.max_codes_B <= 0,
            lengths_B=tf.zeros([batch], tf.int32),
            stopped_B=tf.zeros([batch], tf.bool),
            penalty_BV=tf.ones([batch, gpt.audio_vocab]),
            hidden_BD=tf.cast(gpt.head_norm(gpt.last_norm(x_BPD[:, -1])), tf.float32),
            spoken_B=_spoken_token(attention, latents_BLD.shape[1], text, batch),
            blocked_BC=tf.cast(-bias[:, 0, -1], tf.float32),
            caches_Rd=tuple(caches),
        )

    def _advance(
        self, state: State, record: Record, request: Request, until: tf.Tensor, first: tf.Tensor
    ) -> tuple[State, Record]:
        """Steps until `until` or until every row is finished; the record starts at step `first`."""
        steps = until - state.step
        shape = cache_shape(self.gpt, state.blocked_BC)
        state = state._replace(
            blocked_BC=tf.pad(state.blocked_BC, [[0, 0], [0, steps]]),
            caches_Rd=tuple(grown_cache(cache, shape, steps) for cache in state.caches_Rd),
        )
        room = room_of(self.gpt, state.blocked_BC, state.step, steps)
        # Outside the loop: inside, every weight would be looked up again for every code.
        weights = read_weights(self.gpt)

        def step(state: State, record: Record) -> tuple[State, Record]:
            code_B = self._choose(state, request, weights)
            at = state.step - first
            record = Record(
                record.codes.write(at, code_B),
                record.latents.write(at, state.hidden_BD),
                record.spoken.write(at, state.spoken_B),
            )
            place = room.at(state.step)
            return self._feed(self._mark(state, code_B, request), code_B, place, request, weights), record

        state, record = tf.while_loop(
            lambda state, record: (state.step < until) & ~tf.reduce_all(state.finished_B),
            step,
            (state, record),
            shape_invariants=(_loop_shapes(state), Record(*(tf.TensorShape(None),) * 3)),
        )
        return state, record

    def _choose(self, state: State, request: Request, weights: StepWeights) -> tf.Tensor:
        """The next code of every row, or the stop token."""
        early_B1 = tf.cast(state.step < request.min_codes_B1, tf.float32)
        stop_V = tf.one_hot(self.gpt.audio_stop, self.gpt.audio_vocab, MASKED)
        logits_BV = request.guided(penalise(predict(state.hidden_BD, weights), state.penalty_BV)) + early_B1 * stop_V
        sampled_B = sample(logits_BV, request.sampling, tf.gather(request.uniform_NB1, state.step))
        return request.for_all_rows(sampled_B)

    def _mark(self, state: State, code_B: tf.Tensor, request: Request) -> State:
        """Which rows end with this code, and how long all are."""
        stops_B = ~state.finished_B & (code_B == self.gpt.audio_stop)
        longer_B = ~state.finished_B & ~stops_B
        lengths_B = state.lengths_B + tf.cast(longer_B, tf.int32)
        return state._replace(
            step=state.step + 1,
            lengths_B=lengths_B,
            stopped_B=state.stopped_B | stops_B,
            finished_B=state.finished_B | stops_B | (lengths_B >= request.max_codes_B),
            penalty_BV=tf.maximum(
                state.penalty_BV, tf.one_hot(code_B, state.penalty_BV.shape[1], request.sampling.penalty, 1.0)
            ),
        )

    def _feed(self, state: State, code_B: tf.Tensor, place: Place, request: Request, weights: StepWeights) -> State:
        """Run the blocks on one new code per row, writing its keys and values at `place`."""
        x_BD = tf.gather(weights.embedding, code_B) + tf.gather(weights.position, state.step)
        caches, attention = [], []
        for layer, block in enumerate(weights.blocks):
            x_BD, cache, probabilities = block_step(block, x_BD, state.caches_Rd[layer], place)
            caches.append(cache)
            attention += [probabilities[:, head, 0] for at, head in self.heads if at == layer]
        latents = self.gpt.config.conditioning_latents
        return state._replace(
            hidden_BD=normalised(normalised(x_BD, *weights.last_norm), *weights.head_norm),
            spoken_B=_spoken_token(attention, latents, request.text_width, tf.shape(x_BD)[0]),
            caches_Rd=tuple(caches),
        )


def _spoken_token(attention_BC: list[tf.Tensor], latents: int, text: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """The text token that the heads attend to most; the index behind the last token stands for the stop token."""
    if not attention_BC:
        return tf.zeros([batch, 0], tf.int32)
    over_text = [one[:, latents + 1 : latents + 2 + text] for one in attention_BC]
    return tf.argmax(tf.add_n(over_text), -1, tf.int32)[:, None]


def _loop_shapes(state: State) -> State:
    """Shapes of the state in a loop, free in the batch and in the cache's length."""
    shapes: State = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([None, *tensor.shape[1:]]), state._replace(step=state.lengths_B)
    )
    return shapes._replace(step=tf.TensorShape([]), blocked_BC=tf.TensorShape([None, None]))


def _new_record(size: tf.Tensor) -> Record:
    return Record(
        codes=tf.TensorArray(tf.int32, size, element_shape=[None]),
        latents=tf.TensorArray(tf.float32, size, element_shape=[None, None]),
        spoken=tf.TensorArray(tf.int32, size, element_shape=[None, None]),
    )


def _stacked(record: Record, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The steps that were made, steps first."""
    wanted = tf.range(steps)
    return record.codes.gather(wanted), record.latents.gather(wanted), record.spoken.gather(wanted)


def _generated(
    request: Request,
    lengths_B: np.ndarray,
    stopped_B: np.ndarray,
    codes_NB: tf.Tensor,
    latents_NBD: tf.Tensor,
    spoken_NBS: tf.Tensor,
) -> Generated:
    """The rows that have a text, batch first as NumPy views; S is 1, or 0 without alignment heads."""
    spoken_BNS = spoken_NBS.numpy().transpose(1, 0, 2)
    spoken_BN = spoken_BNS.reshape(spoken_BNS.shape[0], -1)
    latents_BND = latents_NBD.numpy().transpose(1, 0, 2)
    made = Generated(codes_NB.numpy().T, lengths_B, stopped_B, latents_BND, spoken_BN)
    return made if request.guidance is None else Generated(*(rows[: len(rows) // 2] for rows in made))


def new_request(
    gpt: GPT, texts: TextBatch, min_codes: int | Sequence[int]
) -> tuple[tuple[tf.Tensor, tf.Tensor], Request]:
    """Voice latents and text as the prefill takes them, and the request; raises for what this GPT cannot take."""
    text_BU = tf.convert_to_tensor(texts.text_BU, tf.int32)
    batch = int(text_BU.shape[0])
    limit, sampling = gpt.config.max_audio_tokens, texts.sampling
    gpt.refuse_long_text(text_BU.shape[1])
    most = np.minimum(per_row("max_codes", limit if texts.max_codes is None else texts.max_codes, batch), limit)
    request = Request(
        text_lengths_B=tf.convert_to_tensor(texts.lengths_B, tf.int32),
        text_width=tf.constant(text_BU.shape[1]),
        uniform_NB1=random_numbers(per_row("seeds", texts.seeds, batch), limit + 1),
        min_codes_B1=tf.constant(per_row("min_codes", min_codes, batch)[:, None]),
        max_codes_B=tf.constant(most),
        sampling=sampling_tensors(sampling, gpt.audio_vocab),
        guidance=None if sampling.guidance == 1.0 else tf.constant(sampling.guidance, tf.float32),
    )
    latents_BLD = tf.convert_to_tensor(texts.latents_BLD, tf.float32)
    expected = gpt.config.conditioning_latents, gpt.config.gpt_width
    if tuple(latents_BLD.shape[1:]) != expected:
        raise ConfigError(
            f"voice latents have the shape {tuple(latents_BLD.shape)}, this GPT takes [batch, {expected[0]}, "
            f"{expected[1]}]",
            hint="make them with the conditioning encoder of the same model",
        )
    if latents_BLD.shape[0] == 1 and batch > 1:
        latents_BLD = tf.repeat(latents_BLD, batch, 0)
    if request.guidance is not None:
        latents_BLD, text_BU = _twice(latents_BLD), _twice(text_BU)
        request = request._replace(
            text_lengths_B=tf.pad(request.text_lengths_B, [[0, batch]]), max_codes_B=_twice(request.max_codes_B)
        )
    return (latents_BLD, text_BU), request


def _twice(rows: tf.Tensor) -> tf.Tensor:
    return tf.concat([rows, rows], 0)
