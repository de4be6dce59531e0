"""Speaking: codes and latents from text and voice, with a key/value cache, in one compiled loop.

The prompt is read once; every further code costs one row of matrix products. The cache grows by `GROWTH`
positions at a time, so attention never reads far beyond what was written, and a step writes its one row in place.
The prompt is read as the GPT computes, in 16 bits or 32; steps are float32. A row's result depends on its own text,
voice and seed, not on the batch around it. Sizes in names: B batch, L latents, U text positions, P prompt positions,
C cache positions, N codes, D width, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.config.speaking import Sampling
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
from myxtts.synthesis.generation_request import Request, new_request
from myxtts.synthesis.sampling import draw, penalise

GROWTH = 64


class Generated(NamedTuple):
    """Codes of a batch, padded to the longest row; what lies beyond a row's length means nothing."""

    codes_BN: np.ndarray
    lengths_B: np.ndarray
    """Codes before the stop token."""
    stopped_B: np.ndarray
    """False where the length limit ended the row."""
    latents_BND: np.ndarray
    spoken_token_BN: np.ndarray
    """Index of the text token that the alignment heads looked at for each code; empty without such heads."""


class State(NamedTuple):
    """What a step changes."""

    step: tf.Tensor
    finished_B: tf.Tensor
    lengths_B: tf.Tensor
    stopped_B: tf.Tensor
    penalty_BV: tf.Tensor
    """1, or the repetition penalty for codes that were spoken."""
    hidden_BD: tf.Tensor
    """Normalised hidden state that predicts the next code."""
    spoken_B: tf.Tensor
    blocked_BC: tf.Tensor
    """0 where a step may look and large at the padding of the prompt."""
    caches_Rd: tuple[tf.Tensor, ...]
    """Each layer's keys and values."""


class Record(NamedTuple):
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

    def generate(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        min_codes: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Generated:
        """Codes until every row has stopped or is at its limit."""
        inputs, request = new_request(
            self.gpt, latents_BLD, text_BU, text_lengths_B, sampling, seeds, min_codes, max_codes
        )
        lengths, stopped, *made = self._call(self._whole, *inputs, request)
        codes, latents, spoken = _batch_first(*made)
        return _conditional_rows(Generated(codes, lengths.numpy(), stopped.numpy(), latents, spoken), request)

    def stream(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        chunk: int = 20,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        min_codes: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Iterator[Generated]:
        """The same codes as `generate`, `chunk` at a time as they are made; lengths are those of the chunk."""
        if chunk < 1:
            raise ConfigError(f"a chunk of {chunk} codes was asked for", hint="20 codes are about one second")
        inputs, request = new_request(
            self.gpt, latents_BLD, text_BU, text_lengths_B, sampling, seeds, min_codes, max_codes
        )
        state = self._call(self._begin, *inputs, request)
        spoken_so_far: Any = 0
        while not bool(tf.reduce_all(state.finished_B)):
            state, *made = self._call(self._chunk, state, request, tf.constant(chunk))
            lengths = state.lengths_B.numpy()
            codes, latents, spoken = _batch_first(*made)
            yield _conditional_rows(
                Generated(codes, lengths - spoken_so_far, state.stopped_B.numpy(), latents, spoken), request
            )
            spoken_so_far = lengths

    def _call(self, function: Any, *arguments: Any) -> Any:
        """The function on the executor that takes operations in a fixed order.

        The usual one looks for what could run side by side and hands every tensor of the loop through operations of
        its own in every turn: a quarter of a step that is one chain of small operations. On a GPU it stays.
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
        """Read latents, text and the start token; the state then predicts the first code."""
        gpt = self.gpt
        batch = tf.shape(text_BU)[0]
        text_in = gpt.text_inputs(text_BU, request.text_lengths_B)
        start = tf.fill([batch, 1], gpt.audio_start)
        latents_BLD = tf.cast(latents_BLD, gpt.compute_dtype)
        x_BPD = tf.concat([latents_BLD, gpt.embed_text(text_in), gpt.embed_audio(start)], 1)
        text_mask_BU = length_mask(request.text_lengths_B + 2, tf.shape(text_in)[1])
        bias = gpt.attention_bias(latents_BLD.shape[1], text_mask_BU, 1, x_BPD.dtype)
        caches, looked = [], []
        for layer, block in enumerate(gpt.blocks):
            x_BPD, query, key, value = block(x_BPD, [bias], None, site=0)
            caches.append(tf.cast(cache_of(key, value), tf.float32))
            for head in (head for at, head in self.heads if at == layer):
                looked.append(attention_probabilities(query[:, head, -1:], key[:, head], bias[:, 0, -1:])[:, 0])
        text = tf.shape(text_BU)[1]
        return State(
            step=tf.zeros([], tf.int32),
            finished_B=request.max_codes_B <= 0,
            lengths_B=tf.zeros([batch], tf.int32),
            stopped_B=tf.zeros([batch], tf.bool),
            penalty_BV=tf.ones([batch, gpt.audio_vocab]),
            hidden_BD=tf.cast(gpt.head_norm(gpt.last_norm(x_BPD[:, -1])), tf.float32),
            spoken_B=_spoken_token(looked, latents_BLD.shape[1], text, batch),
            blocked_BC=tf.cast(-bias[:, 0, -1], tf.float32),
            caches_Rd=tuple(caches),
        )

    def _advance(
        self, state: State, record: Record, request: Request, until: tf.Tensor, first: tf.Tensor
    ) -> tuple[State, Record]:
        """Steps until `until` or until every row is finished; the record starts at step `first`."""
        steps = until - state.step
        state = _grown(state, self.gpt, steps)
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
        return request.for_all(draw(logits_BV, request.sampling, tf.gather(request.uniform_NB1, state.step)))

    def _mark(self, state: State, code_B: tf.Tensor, request: Request) -> State:
        """Who has finished with this code, and how long the rows are."""
        stops_B = ~state.finished_B & (code_B == self.gpt.audio_stop)
        spoke_B = ~state.finished_B & ~stops_B
        lengths_B = state.lengths_B + tf.cast(spoke_B, tf.int32)
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
        caches, looked = [], []
        for layer, block in enumerate(weights.blocks):
            x_BD, cache, probabilities = block_step(block, x_BD, state.caches_Rd[layer], place)
            caches.append(cache)
            looked += [probabilities[:, head, 0] for at, head in self.heads if at == layer]
        latents = self.gpt.config.conditioning_latents
        return state._replace(
            hidden_BD=normalised(normalised(x_BD, *weights.last_norm), *weights.head_norm),
            spoken_B=_spoken_token(looked, latents, request.text_width, tf.shape(x_BD)[0]),
            caches_Rd=tuple(caches),
        )


def _grown(state: State, gpt: GPT, by: tf.Tensor) -> State:
    """Caches of their own for the steps that follow, with room for `by` more positions."""
    shape = cache_shape(gpt, state.blocked_BC)
    return state._replace(
        blocked_BC=tf.pad(state.blocked_BC, [[0, 0], [0, by]]),
        caches_Rd=tuple(grown_cache(cache, shape, by) for cache in state.caches_Rd),
    )


def _spoken_token(looked_BC: list[tf.Tensor], latents: int, text: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """The text token that the heads look at most; the index behind the last token stands for the stop token."""
    if not looked_BC:
        return tf.zeros([batch, 0], tf.int32)
    over_text = [one[:, latents + 1 : latents + 2 + text] for one in looked_BC]
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
    """The steps that were made, steps first; `_batch_first` turns them."""
    wanted = tf.range(steps)
    return record.codes.gather(wanted), record.latents.gather(wanted), record.spoken.gather(wanted)


def _batch_first(codes_NB: tf.Tensor, latents_NBD: tf.Tensor, spoken_NBS: tf.Tensor) -> tuple[np.ndarray, ...]:
    """Turned as NumPy views; S is 1, or 0 where no heads were asked for."""
    spoken = spoken_NBS.numpy().transpose(1, 0, 2)
    return codes_NB.numpy().T, latents_NBD.numpy().transpose(1, 0, 2), spoken.reshape(spoken.shape[0], -1)


def _conditional_rows(made: Generated, request: Request) -> Generated:
    """The rows that have words."""
    if request.guidance is None:
        return made
    return Generated(*(rows[: len(rows) // 2] for rows in made))
