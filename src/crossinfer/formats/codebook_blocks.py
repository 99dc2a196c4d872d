"""The IQ types with vector codebooks: what their blocks mean.

A block of 256 weights is 32 runs of eight, each one row (IQ3: two rows) of a table, times signs,
times a scale that a few runs share. No affine format holds them: a run's weights are not multiples
of a step that few bits count. Source: ggml's `dequantize_row_iq*` (`ggml-quants.c`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.codebook_grids import grid

_RUNS, _RUN = 32, 8
_DELTA = np.float32(0.125)

# Of eight signs seven are stored; the last makes the number of minuses even.
_SIGNS_BY_CODE = np.array([code | (code.bit_count() & 1) << 7 for code in range(128)], np.uint8)


def _half(blocks: Array, offset: int = 0) -> Array:
    """The block's float16 scale as float32 [n, 1]."""
    return blocks[:, offset : offset + 2].copy().view("<f2").astype(np.float32)


def _words(blocks: Array, begin: int, end: int, dtype: str) -> Array:
    return np.ascontiguousarray(blocks[:, begin:end]).view(dtype)


def _split(values: Array, *shifts: int) -> Array:
    """Each value shifted right by each of `shifts`, side by side: [n, count · len(shifts)]."""
    parts: Array = values[:, :, None] >> np.array(shifts, dtype=values.dtype)
    return parts.reshape(len(values), -1)


def _per_run(scales: Array) -> Array:
    """Scales of equal parts of a block, for each run: [n, runs, 1]."""
    by_run: Array = np.repeat(scales, _RUNS // scales.shape[1], axis=1)[:, :, None]
    return by_run


def _runs(table: str, rows: Array) -> Array:
    return grid(table)[rows].reshape(len(rows), _RUNS, _RUN)


def _signs(bytes_by_run: Array) -> Array:
    """Eight factors of 1 or -1 for each run, from a byte."""
    bits = np.unpackbits(bytes_by_run[:, :, None], axis=2, bitorder="little")
    return np.float32(1) - 2 * bits.astype(np.float32)


def _iq2_xxs(blocks: Array) -> Array:
    words = _words(blocks, 2, 66, "<u4").reshape(len(blocks), -1, 2)
    rows = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
    scales = _half(blocks) * (np.float32(0.5) + (words[:, :, 1] >> 28)) * np.float32(0.25)
    signs = _SIGNS_BY_CODE[_split(words[:, :, 1], 0, 7, 14, 21) & 127]
    return _per_run(scales.astype(np.float32)) * _runs("iq2_xxs", rows) * _signs(signs)


def _iq2_xs(blocks: Array) -> Array:
    codes = _words(blocks, 2, 66, "<u2")
    nibbles = _split(blocks[:, 66:74], 0, 4) & 15
    scales = _half(blocks) * (np.float32(0.5) + nibbles) * np.float32(0.25)
    signs = _SIGNS_BY_CODE[codes >> 9]
    return _per_run(scales.astype(np.float32)) * _runs("iq2_xs", codes & 511) * _signs(signs)


def _iq2_s(blocks: Array) -> Array:
    high = (_split(blocks[:, 66:74], 0, 2, 4, 6) & 3).astype(np.uint16) << 8
    nibbles = _split(blocks[:, 74:82], 0, 4) & 15
    scales = _half(blocks) * (np.float32(0.5) + nibbles) * np.float32(0.25)
    signs = _signs(blocks[:, 34:66])
    return _per_run(scales.astype(np.float32)) * _runs("iq2_s", blocks[:, 2:34] | high) * signs


def _iq3_xxs(blocks: Array) -> Array:
    words = _words(blocks, 66, 98, "<u4")
    scales = _half(blocks) * (np.float32(0.5) + (words >> 28)) * np.float32(0.5)
    signs = _SIGNS_BY_CODE[_split(words, 0, 7, 14, 21) & 127]
    runs = _runs("iq3_xxs", blocks[:, 2:66])
    return _per_run(scales.astype(np.float32)) * runs * _signs(signs)


def _iq3_s(blocks: Array) -> Array:
    high = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16) << 8
    nibbles = _split(blocks[:, 106:110], 0, 4) & 15
    scales = _half(blocks) * (1 + 2 * nibbles).astype(np.float32)
    runs = _runs("iq3_s", blocks[:, 2:66] | high)
    return _per_run(scales) * runs * _signs(blocks[:, 74:106])


def _iq1_s(blocks: Array) -> Array:
    words = _words(blocks, 34, 50, "<u2")
    scales = _half(blocks) * (2 * ((words >> 12) & 7) + 1).astype(np.float32)
    high = (_split(words, 0, 3, 6, 9) & 7) << 8
    deltas = np.where(words & 0x8000, -_DELTA, _DELTA)
    values: Array = _runs("iq1_s", blocks[:, 2:34] | high) + _per_run(deltas)
    return _per_run(scales) * values


def _iq1_m(blocks: Array) -> Array:
    words = _words(blocks, 48, 56, "<u2")
    # The float16 scale is cut into the four highest bits of each word.
    d = np.bitwise_or.reduce((words & 0xF000) >> np.array([12, 8, 4, 0], np.uint16), axis=1)
    half = d[:, None].astype(np.uint16).view(np.float16).astype(np.float32)
    scales = half * (2 * (_split(words, 0, 3, 6, 9) & 7) + 1).astype(np.float32)
    codes = _split(blocks[:, 32:48], 0, 4)
    rows = blocks[:, :32] | (codes & 7).astype(np.uint16) << 8
    deltas = np.where(codes & 8, -_DELTA, _DELTA)
    values: Array = _runs("iq1_s", rows) + deltas[:, :, None]
    return _per_run(scales) * values


CODEBOOKS: Mapping[str, tuple[int, Callable[[Array], Array]]] = {
    "iq1_s": (50, _iq1_s),
    "iq1_m": (56, _iq1_m),
    "iq2_xxs": (66, _iq2_xxs),
    "iq2_xs": (74, _iq2_xs),
    "iq2_s": (82, _iq2_s),
    "iq3_xxs": (98, _iq3_xxs),
    "iq3_s": (110, _iq3_s),
}
"""By label: bytes of a block of 256, and its meaning, uint8 [n, bytes] to float32 [n, 32, 8]."""
