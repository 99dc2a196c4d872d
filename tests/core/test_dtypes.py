"""Scalar storage: rounding to nearest-even, exact widening."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.dtypes import DType, decode_scalars, encode_scalars
from crossinfer.core.shapes import align_up, ceil_div, format_bytes


@given(st.integers(0, 0xFFFF))
def test_bfloat16_round_trips(bits: int) -> None:
    raw = np.array([bits], np.uint16)
    value = decode_scalars(raw, DType.BF16)
    again = encode_scalars(value, DType.BF16)
    assert np.isnan(value[0]) == ((bits & 0x7F80) == 0x7F80 and bool(bits & 0x7F))
    assert np.isnan(value[0]) or again[0] == bits


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_takes_the_nearest_and_even_of_ties(number: float) -> None:
    value = np.array([number], np.float32)
    with np.errstate(over="ignore"):
        rounded = decode_scalars(encode_scalars(value, DType.BF16), DType.BF16)
    bits = int(value.view(np.uint32)[0])
    low = np.array([bits & 0xFFFF0000], np.uint32).view(np.float32)
    high = np.array([(bits & 0xFFFF0000) + 0x10000], np.uint32).view(np.float32)
    rest = bits & 0xFFFF
    if rest < 0x8000:
        assert rounded[0] == low[0]
    elif rest > 0x8000:
        assert rounded[0] == high[0]
    else:
        assert int(rounded.view(np.uint32)[0] >> 16) % 2 == 0
        assert rounded[0] in (low[0], high[0])


def test_a_bfloat16_nan_stays_a_nan() -> None:
    payloads = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(decode_scalars(encode_scalars(payloads, DType.BF16), DType.BF16)).all()


def test_sizes() -> None:
    assert DType.F16.bytes_for((3, 5)) == 30
    assert (ceil_div(7, 3), ceil_div(6, 3), ceil_div(0, 3)) == (3, 2, 0)
    assert (align_up(1, 256), align_up(256, 256)) == (256, 256)
    assert [format_bytes(size) for size in (5, 98_200_000, 4_300_000_000)] == [
        "5 B",
        "98.2 MB",
        "4.3 GB",
    ]
