"""Ragged batches for cases: sequences of chosen lengths over a shuffled paged cache."""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record
from crossinfer.core.shapes import ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS, PADDING_BLOCK
from crossinfer.verify.data import Random

_SPARE_BLOCKS = 3
"""Blocks that no sequence owns, the padding block among them."""


@record
class Layout:
    """The sizes of a batch: (rows, kv_len) of each sequence, and padding.

    `columns` is B, if it is to be more than one more than the longest sequence needs.
    """

    sequences: tuple[tuple[int, int], ...]
    padding_rows: int = 0
    padding_sequences: int = 0
    columns: int | None = None

    @property
    def rows(self) -> int:
        """T, with padding."""
        return sum(rows for rows, _ in self.sequences) + self.padding_rows

    @property
    def slots(self) -> int:
        """S, with padding."""
        return len(self.sequences) + self.padding_sequences

    @property
    def table_blocks(self) -> int:
        """B."""
        if self.columns is not None:
            return self.columns
        return 1 + max(ceil_div(length, BLOCK_TOKENS) for _, length in self.sequences)

    @property
    def kv_blocks(self) -> int:
        """Blocks of the cache."""
        return _SPARE_BLOCKS + sum(ceil_div(n, BLOCK_TOKENS) for _, n in self.sequences)


def make_tables(rng: Random, layout: Layout) -> dict[str, Array]:
    """query_start, kv_len and block_table (int32) with blocks in random order."""
    rows = [rows for rows, _ in layout.sequences] + [0] * layout.padding_sequences
    lengths = [length for _, length in layout.sequences] + [0] * layout.padding_sequences
    table = np.full((layout.slots, layout.table_blocks), PADDING_BLOCK, dtype=np.int32)
    free = iter(rng.permutation(np.arange(1, layout.kv_blocks, dtype=np.int32)))
    for row, (_, length) in zip(table, layout.sequences, strict=False):
        for position in range(ceil_div(length, BLOCK_TOKENS)):
            row[position] = next(free)
    return {
        "query_start": np.cumsum([0, *rows], dtype=np.int32),
        "kv_len": np.array(lengths, dtype=np.int32),
        "block_table": table,
    }


def owned_slots(tables: dict[str, Array], kv_blocks: int) -> Array:
    """bool [blocks, 16]: the slots that hold a token of some sequence."""
    owned = np.zeros((kv_blocks, BLOCK_TOKENS), dtype=bool)
    for length, row in zip(tables["kv_len"].tolist(), tables["block_table"], strict=True):
        token = np.arange(length)
        owned[row[token // BLOCK_TOKENS], token % BLOCK_TOKENS] = True
    return owned


LAYOUTS = {
    "one token": Layout(((1, 1),)),
    "decode at block borders": Layout(((1, 15), (1, 16), (1, 17), (1, 33)), 3, 2),
    "prefill": Layout(((35, 35),)),
    "prefill at block borders": Layout(((15, 15), (16, 16), (17, 17)), 0, 1),
    "chunk after cache": Layout(((7, 40),), 1),
    "ragged": Layout(((17, 17), (1, 48), (5, 31), (2, 33)), 5, 2),
    "long": Layout(((1, 300), (3, 257)), 2),
}
