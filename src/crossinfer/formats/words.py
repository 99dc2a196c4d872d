"""Moves codes from a file's bit planes into those of a device, by whole 32-bit words.

A word is four consecutive columns of a row, one in each byte, in the file as on the devices; so
shifting and masking words is all that repacking takes, and nothing is rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.blocks import Plane

VECTORS = 8
"""Words of four columns in a chunk of 32."""


class TargetPlane(Protocol):
    """A device's plane of codes: `bits` words a chunk, each with some bits of many codes."""

    @property
    def bits(self) -> int: ...

    @property
    def mask(self) -> int:
        """The plane's bits at shift 0, in each byte of a word."""

    def position(self, vector: int) -> tuple[int, int]:
        """(word, shift within each byte) of four columns of a chunk."""


def plane_word(
    file_word: Callable[[int], Array], source: Plane, plane: TargetPlane, first: int, word: int
) -> Array:
    """Word `word` of a device's plane, of the chunk that starts at column `first` of a block.

    `file_word(i)` gives word i of the file's plane, uint32 of any shape. Not for planes of run 1.
    """
    moves = plane_moves(source, plane, first, word)
    parts = [_moved(file_word(i), by) & np.uint32(bits) for (i, by), bits in moves.items()]
    return functools.reduce(np.bitwise_or, parts)


def plane_moves(
    source: Plane, plane: TargetPlane, first: int, word: int
) -> dict[tuple[int, int], int]:
    """What such a word is put together from: (word of the file's plane, bits that it is shifted to
    the right, or to the left if negative) to the bits that it gives.
    """
    moves: dict[tuple[int, int], int] = {}
    for vector in range(word, VECTORS, plane.bits):
        byte, shift = source.position(first + 4 * vector)
        target = plane.position(vector)[1]
        key = (byte - source.offset) // 4, shift - target
        moves[key] = moves.get(key, 0) | plane.mask << target
    return moves


def spread_bits(word: Array) -> Array:
    """For planes of run 1: bit 4v + b (column 4v + b of 32) to bit v of byte b."""
    result = np.zeros_like(word)
    for vector in range(VECTORS):
        # The product copies the nibble to where bit b of it is the lowest of byte b.
        nibble = (word >> np.uint32(4 * vector)) & np.uint32(0xF)
        result |= ((nibble * np.uint32(0x00204081)) & np.uint32(0x01010101)) << np.uint32(vector)
    return result


def _moved(word: Array, by: int) -> Array:
    """Shifted right by `by`, or left if it is negative."""
    return word >> np.uint32(by) if by >= 0 else word << np.uint32(-by)
