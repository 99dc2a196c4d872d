"""The shapes of test models and the weights that each has."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from crossinfer.core.dtypes import Array
from crossinfer.testing.random_weights import RandomMatrix, biases, near_one

# Standard deviations are gain / sqrt(inputs). These keep attention scores, the residual stream and
# the logits (standard deviation about 2) of order one through 28 layers.
_VOCABULARY_GAIN = 2.0
_QUERY_KEY_GAIN = 1.4
_RESIDUAL_GAIN = 1.5

ROPE_SCALINGS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32},
}
"""Ready values for `ModelShape.rope_scaling`; original contexts are so short that tests exceed
them."""


class Kind(enum.Enum):
    """What a weight is; norms and biases stay float32 in GGUF files."""

    MATRIX = enum.auto()
    NORM = enum.auto()
    BIAS = enum.auto()


@dataclasses.dataclass(frozen=True)
class Weight:
    """One tensor under its names in both containers, and how its values are drawn.

    `rotary_heads` is the number of heads for rows that rotary embedding turns, else 0. `layer` is
    None outside the layers.
    """

    gguf: str
    hf: str
    kind: Kind
    shape: tuple[int, ...]
    gain: float = 1.0
    rotary_heads: int = 0
    layer: int | None = None

    def matrix(self, seed: int) -> RandomMatrix:
        rows, cols = self.shape
        return RandomMatrix(seed, self.hf, rows, cols, self.gain / math.sqrt(cols))

    def vector(self, seed: int) -> Array:
        """The values of a norm or bias, float32."""
        draw = near_one if self.kind is Kind.NORM else biases
        return draw(seed, self.hf, self.shape[0])


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """Everything that fixes a test model but its seed. `rope_scaling` is what config.json says."""

    architecture: Literal["llama", "qwen2", "qwen3"]
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tie_embeddings: bool
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    context_length: int = 32768
    rope_scaling: Mapping[str, Any] | None = None

    def weights(self) -> Iterator[Weight]:
        """All weights, in the order of llama.cpp's converter."""
        vocabulary = (self.vocab_size, self.hidden_size)
        matrix, norm = Kind.MATRIX, Kind.NORM
        yield Weight(
            "token_embd.weight", "model.embed_tokens.weight", matrix, vocabulary, _VOCABULARY_GAIN
        )
        for layer in range(self.layers):
            yield from self._layer(layer)
        yield Weight("output_norm.weight", "model.norm.weight", norm, (self.hidden_size,))
        if not self.tie_embeddings:
            yield Weight("output.weight", "lm_head.weight", matrix, vocabulary, _VOCABULARY_GAIN)

    def _layer(self, layer: int) -> Iterator[Weight]:
        hidden, middle = self.hidden_size, self.intermediate_size
        q_rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim

        def weight(
            gguf: str,
            hf: str,
            kind: Kind,
            shape: tuple[int, ...],
            gain: float = 1.0,
            heads: int = 0,
        ) -> Weight:
            prefixes = f"blk.{layer}.", f"model.layers.{layer}."
            return Weight(prefixes[0] + gguf, prefixes[1] + hf, kind, shape, gain, heads, layer)

        yield weight("attn_norm.weight", "input_layernorm.weight", Kind.NORM, (hidden,))
        for letter, rows, gain, heads in (
            ("q", q_rows, _QUERY_KEY_GAIN, self.heads),
            ("k", kv_rows, _QUERY_KEY_GAIN, self.kv_heads),
            ("v", kv_rows, 1.0, 0),
        ):
            gguf, hf = f"attn_{letter}", f"self_attn.{letter}_proj"
            shape = (rows, hidden)
            yield weight(f"{gguf}.weight", f"{hf}.weight", Kind.MATRIX, shape, gain, heads)
            if self.architecture == "qwen2":
                yield weight(f"{gguf}.bias", f"{hf}.bias", Kind.BIAS, (rows,), 1.0, heads)
        if self.architecture == "qwen3":
            for letter in "qk":
                gguf, hf = f"attn_{letter}_norm.weight", f"self_attn.{letter}_norm.weight"
                yield weight(gguf, hf, Kind.NORM, (self.head_dim,))
        o_shape = (hidden, q_rows)
        yield weight(
            "attn_output.weight", "self_attn.o_proj.weight", Kind.MATRIX, o_shape, _RESIDUAL_GAIN
        )
        yield weight("ffn_norm.weight", "post_attention_layernorm.weight", Kind.NORM, (hidden,))
        for name in ("gate", "up"):
            shape = (middle, hidden)
            yield weight(f"ffn_{name}.weight", f"mlp.{name}_proj.weight", Kind.MATRIX, shape)
        down = (hidden, middle)
        yield weight("ffn_down.weight", "mlp.down_proj.weight", Kind.MATRIX, down, _RESIDUAL_GAIN)


def _qwen25(
    hidden: int, layers: int, heads: int, kv_heads: int, middle: int, vocabulary: int, tied: bool
) -> ModelShape:
    return ModelShape(
        "qwen2", hidden, middle, layers, heads, kv_heads, hidden // heads, vocabulary, tied
    )


# A prime number of tokens, a few of them unused: kernels meet a tail.
_TINY_VOCABULARY = 347

SHAPES: Mapping[str, ModelShape] = {
    "tiny-llama": ModelShape(
        "llama", 96, 160, 2, 6, 3, 16, _TINY_VOCABULARY, False, 1e4, 1e-5, context_length=256
    ),
    "tiny-qwen2": ModelShape(
        "qwen2", 160, 192, 2, 5, 1, 32, _TINY_VOCABULARY, True, context_length=256
    ),
    "tiny-qwen3": ModelShape(
        "qwen3", 64, 128, 2, 6, 2, 32, _TINY_VOCABULARY, True, context_length=256
    ),
    "qwen2.5-0.5b": _qwen25(896, 24, 14, 2, 4864, 151936, True),
    "qwen2.5-1.5b": _qwen25(1536, 28, 12, 2, 8960, 151936, True),
    "qwen2.5-7b": _qwen25(3584, 28, 28, 4, 18944, 152064, False),
}

# The tiny rows above hold no block of 256. These do, but for one: attn_output of tiny-qwen3 has
# rows of 384, so that a file of K-quants with a fallback type in it is among the test models.
_K_QUANT_SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny-llama": {
        "hidden_size": 256, "intermediate_size": 512, "heads": 8, "kv_heads": 2, "head_dim": 32
    },
    "tiny-qwen2": {
        "hidden_size": 256, "intermediate_size": 512, "heads": 4, "kv_heads": 1, "head_dim": 64
    },
    "tiny-qwen3": {
        "hidden_size": 256, "intermediate_size": 512, "heads": 6, "kv_heads": 2, "head_dim": 64
    },
}  # fmt: skip


def shape_of(name: str, block_elements: int, **overrides: Any) -> ModelShape:
    """The shape `name` with fields replaced, in sizes that suit blocks of `block_elements`.

    `rope_scaling` may also be a key of ROPE_SCALINGS. Raises ValueError for unknown names.
    """
    if name not in SHAPES:
        raise ValueError(f"there is no test model {name!r}; there are {', '.join(SHAPES)}")
    unknown = overrides.keys() - {field.name for field in dataclasses.fields(ModelShape)}
    if unknown:
        raise ValueError(f"a model shape has no {', '.join(sorted(unknown))}")
    scaling = overrides.get("rope_scaling")
    if isinstance(scaling, str):
        overrides["rope_scaling"] = None if scaling == "none" else ROPE_SCALINGS[scaling]
    wide = _K_QUANT_SIZES.get(name, {}) if block_elements == 256 else {}
    return dataclasses.replace(SHAPES[name], **{**wide, **overrides})
