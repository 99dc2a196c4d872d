"""What the architectures share: the inputs of a step, and ops that find weights by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import FormatError
from crossinfer.core.records import record
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.builder import GraphBuilder
from crossinfer.graph.graph import Graph, Tensor
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.models.config import ModelConfig

ROPE_TABLE = "rope_table"


@record
class StepShape:
    """The bucket of a step: the sizes that a graph is built for (see `graph.batch`)."""

    rows: int
    """T: tokens."""
    sequences: int
    """S."""
    table_blocks: int
    """B: blocks that a sequence can have."""
    logits_rows: int
    """R: rows whose logits are wanted; 0 leaves the head out."""
    kv_blocks: int
    """Blocks in the KV cache, the padding block included."""
    kv_dtype: DType
    positions: int
    """Rows of the rotary table."""


class DecoderBuilder:
    """Builds the graph of a decoder step. Weights are named as the checkpoint names them.

    Graph inputs: tokens i32 [T], query_start i32 [S + 1], kv_len i32 [S], block_table i32 [S, B]
    and, if logits are wanted, logits_rows i32 [R]. Outputs: logits f32 [R, V], argmax i32 [R].
    """

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Operand], shape: StepShape
    ) -> None:
        self.config = config
        self._weights = weights
        self._shape = shape
        self._graph = GraphBuilder()
        self._tokens = self._graph.input("tokens", (shape.rows,))
        self._batch = {
            "query_start": self._graph.input("query_start", (shape.sequences + 1,)),
            "kv_len": self._graph.input("kv_len", (shape.sequences,)),
            "block_table": self._graph.input("block_table", (shape.sequences, shape.table_blocks)),
        }

    @contextlib.contextmanager
    def layer(self, number: int) -> Iterator[None]:
        """Names and nodes within are those of a layer."""
        self._graph.scope, self._graph.layer = f"model.layers.{number}.", number
        yield
        self._graph.scope, self._graph.layer = "", None

    def weight(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The weight `name` in the current scope. Raises FormatError if absent or misshapen."""
        name = f"{self._graph.scope}{name}"
        found = self._weights.get(name)
        if found is None:
            raise FormatError(f"The model has no tensor {name}, which its architecture needs.")
        if found.shape != shape:
            raise FormatError(
                f"The tensor {name} has the shape {found.shape}, but the model's sizes "
                f"make it {shape}."
            )
        return self._graph.constant(name, shape, found.storage, found.role)

    def embed(self, name: str) -> Tensor:
        """The tokens' rows of the embedding table, [T, hidden]."""
        table = self.weight(f"{name}.weight", (self.config.vocabulary, self.config.hidden))
        return self._graph.apply(name, Embed(), ids=self._tokens, table=table)["output"]

    def norm(self, x: Tensor, name: str, size: int) -> Tensor:
        """Root mean square normalisation over runs of `size`."""
        weight = self.weight(f"{name}.weight", (size,))
        return self._graph.apply(name, RmsNorm(self.config.norm_eps), x=x, weight=weight)["output"]

    def linear(
        self,
        x: Tensor,
        name: str,
        size: int,
        *,
        bias: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        """x · weightᵀ, [T, size], plus bias and residual where asked for."""
        return self._graph.apply(
            name,
            Linear(),
            x=x,
            weight=self.weight(f"{name}.weight", (size, x.type.shape[1])),
            bias=self.weight(f"{name}.bias", (size,)) if bias else None,
            residual=residual,
        )["output"]

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Rotary embedding, KV cache write and attention of one layer, [T, heads · head_dim]."""
        config, shape, graph = self.config, self._shape, self._graph
        cache = graph.state(
            f"{graph.scope}kv_cache",
            (shape.kv_blocks, 2, config.kv_heads, BLOCK_TOKENS, config.head_dim),
            shape.kv_dtype,
        )
        table = graph.constant(
            ROPE_TABLE, (shape.positions, config.head_dim // 2, 2), DType.F32, Role.PLAIN
        )
        rope = RopeKv(config.head_dim, config.rope_interleaved)
        written = graph.apply(
            "rope_kv", rope, q=q, k=k, v=v, table=table, cache=cache, **self._batch
        )
        return graph.apply(
            "attention",
            Attention(config.head_dim, config.head_dim**-0.5),
            q=written["rotated"],
            cache=written["written"],
            **self._batch,
        )["output"]

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        return self._graph.apply("mlp.swiglu", Swiglu(), gate=gate, up=up)["output"]

    def finish(self, x: Tensor) -> Graph:
        """The graph, with the final norm and the head on the rows whose logits are wanted."""
        if self._shape.logits_rows:
            rows = self._graph.input("logits_rows", (self._shape.logits_rows,))
            x = self._graph.apply("logits_rows", Embed(), ids=rows, table=x)["output"]
            x = self.norm(x, "model.norm", self.config.hidden)
            head = "model.embed_tokens" if self.config.tied_embeddings else "lm_head"
            logits = self.linear(x, head, self.config.vocabulary)
            self._graph.output("logits", logits)
            best = self._graph.apply("argmax", Argmax(), x=logits)["output"]
            self._graph.output("argmax", best)
        return self._graph.build()
