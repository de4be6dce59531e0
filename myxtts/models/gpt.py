"""The GPT: voice latents, text tokens and audio codes in one causal sequence; it predicts the next token of both.

The sequence is [latents, start, text, stop, start, codes]. Rows are padded to the right: a padded text position is
never attended to, and a padded audio position lies after everything that counts, so a clip in a batch gives what it
gives alone. Sizes in names: B batch, L latents, U text positions, T audio positions, S whole sequence, D width,
H heads, d head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.errors import DataError
from myxtts.models.attention import Dropout, attend_causally, attention_probabilities, causal_windows
from myxtts.models.layers import (
    MASKED,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    dropout,
    gelu_linear,
    length_mask,
    merge_heads,
)

AlignmentHeads = Sequence[tuple[int, int]]
"""(layer, head) pairs whose attention from audio to text is read or supervised."""

DEFAULT_ALIGNMENT_HEADS: AlignmentHeads = ((1, 0), (2, 0))
TEXT_LOSS_WEIGHT = 0.01
AUDIO_LOSS_WEIGHT = 1.0


class GPTOutput(NamedTuple):
    """What one teacher-forced pass gives; row t of the audio predicts code t."""

    text_logits_BUV: tf.Tensor
    audio_logits_BTV: tf.Tensor
    latents_BTD: tf.Tensor
    """Normalised hidden states of the audio positions: what HiFi-GAN decodes."""
    attention_BTU: tuple[tf.Tensor, ...]
    """Attention of each asked-for head from audio position to text position (0 is the start token)."""


class BlockOutput(NamedTuple):
    x_BSD: tf.Tensor
    query_BHSd: tf.Tensor
    key_BHSd: tf.Tensor
    value_BHSd: tf.Tensor


class Block(Module):
    """One GPT-2 block: attention and feed-forward, each with a norm before and a residual around."""

    def __init__(self, width: int, heads: int, layers: int, rate: float, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.heads = heads
        self.rate = rate
        residual_std = 0.02 / (2 * layers) ** 0.5
        self.attention_norm = LayerNorm(width, name="attention_norm")
        self.qkv = Linear(width, 3 * width, name="qkv")
        self.attention_out = Linear(width, width, std=residual_std, name="attention_out")
        self.feed_norm = LayerNorm(width, name="feed_norm")
        self.up = Linear(width, 4 * width, name="up")
        self.down = Linear(4 * width, width, std=residual_std, name="down")

    def call(
        self, x_BSD: tf.Tensor, windows_B1QK: Sequence[tf.Tensor], seed: tf.Tensor | None, *, site: int
    ) -> BlockOutput:
        shape = tf.shape(x_BSD)
        width = x_BSD.shape[-1] // self.heads
        qkv = tf.reshape(self.qkv(self.attention_norm(x_BSD)), [shape[0], shape[1], 3, self.heads, width])
        query, key, value = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]), 3)
        found = merge_heads(attend_causally(query, key, value, windows_B1QK, Dropout(self.rate, seed, site)))
        x_BSD = x_BSD + dropout(self.attention_out(found), self.rate, seed, site + 1)
        fed = gelu_linear(self.up(self.feed_norm(x_BSD)), self.down.kernel, self.down.bias)
        x_BSD = x_BSD + dropout(fed, self.rate, seed, site + 2)
        return BlockOutput(x_BSD, query, key, value)


class GPT(Module):
    """Next text token and next audio code from everything before them, in the reference's voice."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "gpt", **keras_options})
        width = config.gpt_width
        self.config = config
        # Start and stop stand behind the codes.
        self.audio_start, self.audio_stop = config.audio_codes, config.audio_codes + 1
        self.audio_vocab = config.audio_codes + 2
        self.text_embedding = Embedding(config.text_vocab, width, name="text_embedding")
        self.audio_embedding = Embedding(self.audio_vocab, width, name="audio_embedding")
        self.text_position = Embedding(config.max_text_tokens + 2, width, name="text_position")
        self.audio_position = Embedding(config.max_audio_tokens + 3, width, name="audio_position")
        self.blocks = [
            Block(width, config.gpt_heads, config.gpt_layers, config.dropout, name=f"block_{index + 1}")
            for index in range(config.gpt_layers)
        ]
        # GPT-2's own last norm and XTTS's stand in a row; published weights need both.
        self.last_norm = LayerNorm(width, name="last_norm")
        self.head_norm = LayerNorm(width, name="head_norm")
        self.text_head = Linear(width, config.text_vocab, name="text_head")
        self.audio_head = Linear(width, self.audio_vocab, name="audio_head")

    def call(
        self,
        latents_BLD: tf.Tensor,
        text_BU: tf.Tensor,
        text_lengths_B: tf.Tensor,
        codes_BT: tf.Tensor,
        code_lengths_B: tf.Tensor,
        *,
        seed: tf.Tensor | None = None,
        alignment_heads: AlignmentHeads = (),
        attend_stop: bool | None = None,
    ) -> GPTOutput:
        """Teacher-forced pass over raw text and codes; `seed` (two int32) turns dropout on.

        With `attend_stop` the codes see the text's stop token, as they do in speaking; None for what learning does,
        which the configuration says (published weights were learnt without).
        """
        text_in = self.text_inputs(text_BU, text_lengths_B)
        audio_in = self.audio_inputs(codes_BT, code_lengths_B)
        starts = (latents_BLD.shape[1], tf.shape(text_in)[1])
        attend_stop = self.config.attend_text_stop if attend_stop is None else attend_stop
        attended = text_lengths_B + (2 if attend_stop else 1)
        text_mask_BU = length_mask(attended, starts[1])
        x_BSD = tf.concat([latents_BLD, self.embed_text(text_in), self.embed_audio(audio_in)], 1)
        x_BSD = dropout(x_BSD, self.config.dropout, seed, 0)
        bias_B1SS = self.attention_bias(starts[0], text_mask_BU, tf.shape(audio_in)[1], x_BSD.dtype)
        windows_B1QK = causal_windows(bias_B1SS)
        text_from, audio_from = starts[0], starts[0] + starts[1]
        seen: dict[tuple[int, int], tf.Tensor] = {}
        pairs = [(int(layer), int(head)) for layer, head in alignment_heads]
        for layer, block in enumerate(self.blocks):
            x_BSD, query, key, _ = block(x_BSD, windows_B1QK, seed, site=1 + 3 * layer)
            for at, head in pairs:
                if at == layer:
                    # In float32: the loss takes logarithms, and 16 bits have no gradient of that of a small number.
                    looking = query[:, head, audio_from:], key[:, head], bias_B1SS[:, 0, audio_from:]
                    looked = attention_probabilities(*(tf.cast(x, tf.float32) for x in looking))
                    seen[at, head] = looked[:, :, text_from:audio_from]
        _, text_BUD, audio_BTD = tf.split(x_BSD, [starts[0], starts[1], tf.shape(audio_in)[1]], 1)
        text_BUD, audio_BTD = (self.head_norm(self.last_norm(x)) for x in (text_BUD, audio_BTD))
        return GPTOutput(
            text_logits_BUV=self.text_head(text_BUD),
            audio_logits_BTV=self.audio_head(audio_BTD),
            latents_BTD=audio_BTD,
            attention_BTU=tuple(seen[pair] for pair in pairs),
        )

    def text_inputs(self, text_BU: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
        """[start, text, stop], the stop right behind each row's own text."""
        self.refuse_long_text(text_BU.shape[1])
        text = tf.pad(tf.cast(text_BU, tf.int32), [[0, 0], [1, 1]], constant_values=self.config.text_start_token)
        place = tf.range(tf.shape(text)[1])[None, :]
        return tf.where(place <= lengths_B[:, None], text, self.config.text_stop_token)

    def refuse_long_text(self, tokens: int | None) -> None:
        """An error with its way out; a compiled step that takes any length cannot tell."""
        limit = self.config.max_text_tokens
        if tokens is not None and tokens > limit:
            raise DataError(
                f"a text of {tokens} tokens is longer than the {limit} that the model has positions for",
                hint="split the text, or raise --max-text-tokens and train with it",
            )

    def audio_inputs(self, codes_BT: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
        """[start, codes, stop, ...]: one position for every target."""
        self.refuse_long_audio(codes_BT.shape[1])
        tail = self.config.audio_stop_targets - 1
        codes = surrounded(tf.cast(codes_BT, tf.int32), 1, tail, self.audio_start)
        place = tf.range(tf.shape(codes)[1])[None, :]
        return tf.where(place <= lengths_B[:, None], codes, self.audio_stop)

    def refuse_long_audio(self, codes: int | None) -> None:
        limit = self.config.max_clip_codes
        if codes is not None and codes > limit:
            raise DataError(
                f"{codes} audio codes are more than the {limit} that the model has positions for",
                hint="lower --max-clip-seconds (21.5 codes a second), or raise --max-audio-tokens and train with it",
            )

    def embed_text(self, text_in_BU: tf.Tensor) -> tf.Tensor:
        return self.text_embedding(text_in_BU) + self.text_position.first(tf.shape(text_in_BU)[1])

    def embed_audio(self, audio_in_BT: tf.Tensor) -> tf.Tensor:
        return self.audio_embedding(audio_in_BT) + self.audio_position.first(tf.shape(audio_in_BT)[1])

    @staticmethod
    def attention_bias(latents: int, text_mask_BU: tf.Tensor, audio: tf.Tensor | int, dtype: tf.DType) -> tf.Tensor:
        """[B, 1, S, S]: 0 where a query may look, a large negative number where it may not."""
        keep_BS = tf.pad(text_mask_BU, [[0, 0], [latents, audio]], constant_values=True)
        place = tf.range(tf.shape(keep_BS)[1])
        causal_SS = place[None, :] <= place[:, None]
        allowed = causal_SS[None, None] & keep_BS[:, None, None, :]
        return tf.where(allowed, tf.zeros([], dtype), tf.cast(MASKED, dtype))


def surrounded(codes_BT: tf.Tensor, before: int, behind: int, code: int) -> tf.Tensor:
    """Every row with `code` so many times before and behind it. Not `tf.pad`: of integers it runs in host memory."""
    rows = tf.shape(codes_BT)[0]
    left, right = (tf.fill([rows, count], tf.constant(code, codes_BT.dtype)) for count in (before, behind))
    return tf.concat([left, codes_BT, right], 1)


class GPTLosses(NamedTuple):
    """Scalars of one batch; `total` is what is learnt from."""

    total: tf.Tensor
    text: tf.Tensor
    audio: tf.Tensor
    alignment: tf.Tensor
    audio_accuracy: tf.Tensor


def gpt_losses(
    gpt: GPT,
    output: GPTOutput,
    text_BU: tf.Tensor,
    text_lengths_B: tf.Tensor,
    codes_BT: tf.Tensor,
    code_lengths_B: tf.Tensor,
    *,
    alignment_BT: tf.Tensor | None = None,
    alignment_weight: float = 0.0,
) -> GPTLosses:
    """0.01 x text + 1.0 x audio (+ alignment), each the mean over the positions that count."""
    config = gpt.config
    text = tf.pad(tf.cast(text_BU, tf.int32), [[0, 0], [0, 2]])
    text_mean, _ = _cross_entropy(output.text_logits_BUV, text, text_lengths_B, config.text_stop_token, 1)
    codes = surrounded(tf.cast(codes_BT, tf.int32), 0, config.audio_stop_targets, 0)
    audio_mean, accuracy = _cross_entropy(
        output.audio_logits_BTV, codes, code_lengths_B, gpt.audio_stop, config.audio_stop_targets
    )
    total = TEXT_LOSS_WEIGHT * text_mean + AUDIO_LOSS_WEIGHT * audio_mean
    alignment = tf.zeros([], tf.float32)
    if alignment_BT is not None and output.attention_BTU:
        alignment = alignment_loss(output.attention_BTU, alignment_BT, text_lengths_B, code_lengths_B)
        total += alignment_weight * alignment
    return GPTLosses(total, text_mean, audio_mean, alignment, accuracy)


def _cross_entropy(
    logits_BTV: tf.Tensor, tokens_BT: tf.Tensor, lengths_B: tf.Tensor, stop: int, stops: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean loss and accuracy over each row's tokens and the `stops` stop tokens behind them."""
    lengths_B = tf.cast(lengths_B, tf.int32)[:, None]
    place = tf.range(tf.shape(tokens_BT)[1])[None, :]
    targets_BT = tf.where(place < lengths_B, tokens_BT, stop)
    weight_BT = tf.cast(place < lengths_B + stops, tf.float32)
    logits_BTV = tf.cast(logits_BTV, tf.float32)
    loss_BT = token_losses(logits_BTV, targets_BT)
    right_BT = tf.cast(tf.equal(tf.argmax(logits_BTV, -1, tf.int32), targets_BT), tf.float32)
    count = tf.reduce_sum(weight_BT)
    return tf.reduce_sum(loss_BT * weight_BT) / count, tf.reduce_sum(right_BT * weight_BT) / count


@tf.custom_gradient  # type: ignore[untyped-decorator]
def token_losses(logits_BTV: tf.Tensor, targets_BT: tf.Tensor) -> Any:
    """Cross-entropy of each position; only the probabilities are kept for the gradient, which is made of them."""
    probabilities_BTV = tf.nn.softmax(logits_BTV)
    # log sum exp from the likeliest token, whose probability cannot vanish.
    behind_BT = tf.reduce_max(logits_BTV, -1) - tf.gather(logits_BTV, targets_BT, batch_dims=2)
    loss_BT = behind_BT - tf.math.log(tf.reduce_max(probabilities_BTV, -1))

    def gradient(upstream_BT: tf.Tensor) -> tuple[tf.Tensor, None]:
        shape = tf.shape(targets_BT)
        rows, columns = tf.meshgrid(tf.range(shape[0]), tf.range(shape[1]), indexing="ij")
        at_target = tf.stack([rows, columns, targets_BT], -1)
        return tf.tensor_scatter_nd_sub(probabilities_BTV * upstream_BT[..., None], at_target, upstream_BT), None

    return loss_BT, gradient


def alignment_loss(
    attention_BTU: Sequence[tf.Tensor], alignment_BT: tf.Tensor, text_lengths_B: tf.Tensor, code_lengths_B: tf.Tensor
) -> tf.Tensor:
    """Cross-entropy of each head's attention against 0.8 on the spoken token and 0.1 on each neighbour.

    `alignment_BT` has, for every code, the index of its token in the text (0 is the first); the position that predicts
    code t should look at that token. A neighbour outside the text gives its share to the token; a row without text has
    nothing to look at and does not count.
    """
    token_BT = tf.cast(alignment_BT, tf.int32)
    last_B1 = tf.maximum(tf.cast(text_lengths_B, tf.int32)[:, None] - 1, 0)
    weight_BT = tf.cast(length_mask(code_lengths_B, tf.shape(token_BT)[1]), tf.float32)
    weight_BT *= tf.cast(text_lengths_B > 0, tf.float32)[:, None]
    total = tf.zeros([], tf.float32)
    for head_BTU in attention_BTU:
        log_BTU = tf.math.log(tf.cast(head_BTU[:, : tf.shape(token_BT)[1]], tf.float32) + 1e-8)
        picked = [
            share * tf.gather(log_BTU, tf.clip_by_value(token_BT + step, 0, last_B1) + 1, batch_dims=2)
            for share, step in ((0.1, -1), (0.8, 0), (0.1, 1))
        ]
        total -= tf.reduce_sum(tf.add_n(picked) * weight_BT)
    return total / (tf.maximum(tf.reduce_sum(weight_BT), 1.0) * float(len(attention_BTU)))
