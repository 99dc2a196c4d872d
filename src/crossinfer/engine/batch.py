"""The ragged batch of one step, and its tables as the bytes of the parameter buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.graph.batch import PADDING_BLOCK
from crossinfer.models.decoder import StepShape
from crossinfer.plan.memory import Arena


@dataclasses.dataclass(frozen=True)
class BatchLimits:
    """The largest batch that will be run."""

    rows: int
    sequences: int
    logits_rows: int
    """Rows whose logits are kept at once: with a vocabulary of 150,000, 64 are 40 MB."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The rows of one sequence: its next `tokens`, after which its KV cache holds `kv_len`."""

    tokens: Sequence[int]
    kv_len: int
    blocks: Sequence[int]
    """The blocks of the sequence's KV cache, enough for `kv_len` tokens."""
    logits: Sequence[int] = ()
    """Rows of this chunk (counted from its start) whose logits are wanted, ascending."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What one step computes. Logits come in the order of the chunks and of their `logits`."""

    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)

    @property
    def logits_rows(self) -> int:
        return sum(len(chunk.logits) for chunk in self.chunks)

    def pack(self, shape: StepShape, parameters: Arena) -> bytes:
        """The step's inputs, padded to `shape` and laid out as `parameters` says."""
        tables = {
            "tokens": np.zeros(shape.rows, np.int32),
            "query_start": np.zeros(shape.sequences + 1, np.int32),
            "kv_len": np.zeros(shape.sequences, np.int32),
            "block_table": np.full(
                (shape.sequences, shape.table_blocks), PADDING_BLOCK, dtype=np.int32
            ),
            "logits_rows": np.zeros(shape.logits_rows, np.int32),
        }
        start, wanted = 0, 0
        for s, chunk in enumerate(self.chunks):
            end = start + len(chunk.tokens)
            tables["tokens"][start:end] = chunk.tokens
            tables["query_start"][s + 1 :] = end
            tables["kv_len"][s] = chunk.kv_len
            tables["block_table"][s, : len(chunk.blocks)] = chunk.blocks
            rows = np.asarray(chunk.logits, np.int32) + start
            tables["logits_rows"][wanted : wanted + len(rows)] = rows
            start, wanted = end, wanted + len(rows)
        return _lay_out(tables, parameters)


def _lay_out(tables: dict[str, Array], parameters: Arena) -> bytes:
    raw = np.zeros(parameters.size, np.uint8)
    for name, region in parameters.regions.items():
        table = tables[str(name)].reshape(-1).view(np.uint8)
        raw[region.offset : region.offset + region.size] = table
    return raw.tobytes()
