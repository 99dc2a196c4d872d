"""What the products know of the activations that they read: sizes of tiles, without code for them.

`activations` generates what makes the tiles.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.layout import CHUNK_COLUMNS, BlockLayout
from crossinfer.core.records import record
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.activations import ActivationBlocks
from crossinfer.formats.blocks import BlockFormat

QUANTIZED = ActivationBlocks(CHUNK_COLUMNS)
"""One scale a chunk: as fine as the finest that peers use, so no format loses to them by it."""

SEGMENT_COLUMNS = 1024
"""Columns that a workgroup takes. Shorter ones cost more than they bring: a row that is read in
pieces of 512 bytes, far from the next row's, took four times as long.
"""


@record
class ActivationTile:
    """The record of quantized activations: `tokens` rows of one chunk. Offsets are in bytes."""

    tokens: int
    groups: int
    """Scale groups of the weight in a chunk."""
    zero: int
    """The weight's zero; 0 if it has offsets instead, or neither."""
    has_offsets: bool

    @property
    def has_sums(self) -> bool:
        return self.zero != 0 or self.has_offsets

    def codes(self, token: int, vector: int = 0) -> int:
        """Four columns of a token."""
        return CHUNK_COLUMNS * token + 4 * vector

    def scale(self, token: int) -> int:
        return CHUNK_COLUMNS * self.tokens + 4 * token

    def sum(self, group: int, token: int) -> int:
        return (CHUNK_COLUMNS + 4 * (1 + group)) * self.tokens + 4 * token

    @property
    def size_in_bytes(self) -> int:
        return (CHUNK_COLUMNS + 4 + (4 * self.groups if self.has_sums else 0)) * self.tokens


def preparation_grid(rows: int, columns: int, tokens: int) -> tuple[int, int, int]:
    return ceil_div(columns, SEGMENT_COLUMNS), ceil_div(rows, tokens), 1


def activation_tile(storage: BlockFormat, tokens: int) -> ActivationTile:
    """The activations that a weight of this format wants."""
    layout = BlockLayout(storage)
    return ActivationTile(tokens, layout.groups, storage.zero, layout.has_offsets)
