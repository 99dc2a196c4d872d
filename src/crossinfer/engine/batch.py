"""The ragged batch of one step, and its tables as the bytes of the parameter buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import RequestError
from crossinfer.core.records import record
from crossinfer.graph.batch import PADDING_BLOCK
from crossinfer.hal.device import Device
from crossinfer.models.decoder import StepShape
from crossinfer.plan.memory import Arena


@record
class BatchLimits:
    """The largest batch that will be run."""

    rows: int
    sequences: int
    logits_rows: int
    """Rows whose logits are kept at once: with a vocabulary of 150,000, 64 are 40 MB."""


_SEQUENCES = 16
_LOGITS_ROWS = 64


def step_limits(devices: Sequence[Device], step_rows: int | None = None) -> BatchLimits:
    """The limits that suit the first of a row of devices, which has most of the work.

    `step_rows` asks for fewer rows. Raises RequestError for less than one.
    """
    if step_rows is not None and step_rows < 1:
        raise RequestError(f"step_rows is {step_rows}; it must be at least 1.")
    suited = devices[0].info.step_rows
    return BatchLimits(min(suited, step_rows or suited), _SEQUENCES, _LOGITS_ROWS)


@record
class Chunk:
    """The rows of one sequence: its next `tokens`, after which its KV cache holds `kv_len`."""

    tokens: Sequence[int]
    kv_len: int
    blocks: Sequence[int]
    """The blocks of the sequence's KV cache, enough for `kv_len` tokens."""
    logits: Sequence[int] = ()
    """Rows of this chunk (counted from its start) whose logits are wanted, ascending."""


@record
class Batch:
    """What one step computes. Logits come in the order of the chunks and of their `logits`."""

    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)

    @property
    def logits_rows(self) -> int:
        return sum(len(chunk.logits) for chunk in self.chunks)


class ParameterTables:
    """The inputs of one bucket as bytes of the parameter buffer, written step after step.

    A step writes what differs from the step before: a few numbers for one token more.
    """

    def __init__(self, shape: StepShape, parameters: Arena) -> None:
        self._raw = bytearray(parameters.size)
        tables = {
            str(name): np.frombuffer(
                self._raw, np.int32, region.size // DType.I32.block_bytes, region.offset
            )
            for name, region in parameters.regions.items()
        }
        self._tokens = tables["tokens"]
        self._query_start = tables["query_start"]
        self._kv_len = tables["kv_len"]
        self._block_table = tables["block_table"].reshape(shape.sequences, shape.table_blocks)
        self._block_table[...] = PADDING_BLOCK
        self._blocks: list[Sequence[int]] = [()] * shape.sequences
        self._logits_rows = tables.get("logits_rows", np.zeros(0, np.int32))
        self._used = (0, 0)
        """Rows and rows of logits of the step before."""

    def fill(self, batch: Batch) -> bytes:
        """The inputs of a step, padded."""
        start, wanted = 0, 0
        for s, chunk in enumerate(batch.chunks):
            end = start + len(chunk.tokens)
            self._tokens[start:end] = chunk.tokens
            self._query_start[s + 1 :] = end
            self._kv_len[s] = chunk.kv_len
            self._set_blocks(s, chunk.blocks)
            for row in chunk.logits:
                self._logits_rows[wanted] = start + row
                wanted += 1
            start = end
        rows, logits_rows = self._used
        self._tokens[start:rows] = 0
        self._logits_rows[wanted:logits_rows] = 0
        for s in range(len(batch.chunks), len(self._blocks)):
            self._kv_len[s] = 0
            self._set_blocks(s, ())
        self._used = start, wanted
        return bytes(self._raw)

    def _set_blocks(self, s: int, blocks: Sequence[int]) -> None:
        if blocks == self._blocks[s]:
            return
        self._block_table[s, : len(blocks)] = blocks
        self._block_table[s, len(blocks) :] = PADDING_BLOCK
        self._blocks[s] = tuple(blocks)
