"""Squares of lanes turned over their diagonals."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.jit.value import Value


def transposed(vectors: Sequence[Value]) -> list[Value]:
    """n vectors of n lanes, n a power of two: lane j of vector i becomes lane i of vector j.

    Each round interleaves vector i with vector i + n/2, which rotates the bits of an element's
    place (vector and lane together) by one; after log2(n) rounds, vector and lane have changed
    places.
    """
    made = list(vectors)
    half = len(made) // 2
    low = [lane for i in range(half) for lane in (i, len(made) + i)]
    high = [lane + half for lane in low]
    for _ in range(half.bit_length()):
        pairs = zip(made[:half], made[half:], strict=True)
        made = [a.shuffle(order, b) for a, b in pairs for order in (low, high)]
    return made
