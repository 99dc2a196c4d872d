"""top_k: each row's k largest elements in descending order; of equal ones the lower index first.

Views: x f32 [R, V] (read); values f32 [R, k], indices i32 [R, k] (written). Constants: V, k.
Dispatch: a workgroup is a row. The outputs hold the largest elements so far, sorted; an element
that is larger than the last of them is inserted. Elements come in the order of their indices, so
that an equal one that comes later stays behind. Of sixteen elements at once, mostly none is larger.
"""

from __future__ import annotations

from crossinfer.jit.arithmetic import any_lane
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i32, i64
from crossinfer.jit.value import Value

LANES = 16


def build_top_k(target: Target) -> str:
    k = KernelBuilder("top_k", target)
    x, all_values, all_indices = k.views(f32, f32, i32)
    V, count = k.constants(i32, i32)
    with k.workgroups() as row:
        logits = x + row * V
        values, indices = all_values + row * count, all_indices + row * count
        with k.range(0, count) as i:
            _insert(k, values, indices, logits[i], i, i)

        def offer(i: Value) -> None:
            with k.if_(logits[i] > values[count - 1]):
                _insert(k, values, indices, logits[i], i, count - 1)

        vectors_end = V - (V - count) % LANES
        with k.range(count, vectors_end, LANES) as start:
            is_larger = logits.vector(start, LANES) > values[count - 1]
            with k.if_(any_lane(is_larger)), k.range(start, start + LANES) as i:
                offer(i)
        with k.range(vectors_end, V) as i:
            offer(i)
    return k.finish()


def _insert(
    k: KernelBuilder, values: Pointer, indices: Pointer, value: Value, index: Value, length: Value
) -> None:
    """Put an element into a sorted list of `length`; what was at its end is overwritten."""
    place = k.variable(i64, length)
    with k.while_() as loop:
        loop.check(place.value > 0)
        before = place.value - 1
        loop.check(values[before] < value)
        values[place.value] = values[before]
        indices[place.value] = indices[before]
        place.set(before)
    values[place.value] = value
    indices[place.value] = index.to(i32)
