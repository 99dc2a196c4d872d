"""Quantized formats that no device computes with, and what each becomes when it is loaded.

Their codes index a table, so they are not affine (`crossinfer.formats.blocks`). Where an affine
format or a scalar type holds all their values, they become that, exactly:

    IQ4_NL   Q8_0: the table's entries are 8-bit integers, and the scale is the same float16
    IQ4_XS   Q8_32, a format of our own: Q8_0's integers with IQ4_XS's scales in two levels
    TQ1_0, TQ2_0   Q2_K: w = d·1·q - d·1 for q - 1 in -1 … 2
    MXFP4    Q8_0 if float16 holds every scale of the tensor (powers of two), else bfloat16
    NVFP4    float16: a product of two 4-bit significands

The IQ1, IQ2 and IQ3 types become float16, which rounds their products of 24 bits to 11. Sources:
ggml's `dequantize_row_*` (`ggml-quants.c`); the OCP Microscaling specification 1.0 for MXFP4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.core.records import record
from crossinfer.formats.blocks import Q2_K, Q8_0, BlockFormat, Plane, StorageType, SuperScales
from crossinfer.formats.codebook_blocks import CODEBOOKS


@record
class TableFormat:
    """A format that is converted when it is loaded."""

    label: str
    block_elements: int
    block_bytes: int
    exact: bool
    """Whether the conversion keeps every value."""
    choose: Callable[[Array], StorageType]
    """What blocks, uint8 [n, block_bytes], become."""
    encode: Callable[[Array, StorageType], Array]
    """The chosen type's bytes for such blocks."""

    def bytes_for(self, shape: Sequence[int]) -> int:
        """Bytes that a tensor takes whose last dimension is a whole number of blocks."""
        return math.prod(shape) // self.block_elements * self.block_bytes


FileType = StorageType | TableFormat
"""How a file may store a tensor."""

Q8_32 = BlockFormat(
    label="q8_32",
    block_elements=256,
    block_bytes=266,
    group_elements=32,
    bits=8,
    zero=128,
    planes=(Plane(10, 8, 256, 256),),
    scale_offset=0,
    super_scales=SuperScales((Plane(2, 6, 8, 8),), zero=32),
)
"""In no file: 8-bit codes, scaled in two levels; a scale code of 6 bits takes a byte."""

_IQ4 = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)
# Twice the values, which are halves.
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)


def _nibbles(codes: Array, run: int) -> Array:
    """The low halves of `run` bytes, then their high halves, and so on: uint8 [n, 2 · bytes]."""
    groups = codes.reshape(len(codes), -1, run)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(len(codes), -1)


def _iq4_nl(blocks: Array, _: StorageType) -> Array:
    return np.concatenate([blocks[:, :2], _IQ4[_nibbles(blocks[:, 2:], 16)].view(np.uint8)], axis=1)


def _iq4_xs(blocks: Array, _: StorageType) -> Array:
    """Blocks are: f16 d, u16 high bits of the scale codes, u8[4] low bits, u8[128] codes."""
    group = np.arange(8)
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> (2 * group).astype(np.uint16)
    low = blocks[:, 4 + group // 2] >> (4 * (group % 2)).astype(np.uint8)
    scales = (low & 15) | ((high & 3) << 4).astype(np.uint8)
    codes = _IQ4[_nibbles(blocks[:, 8:], 16)].view(np.uint8) ^ np.uint8(128)
    return np.concatenate([blocks[:, :2], scales, codes], axis=1)


def _as_q2_k(half: Array, codes: Array) -> Array:
    """Q2_K blocks of value half · (code - 1): every scale and min code is 1, and dmin is d."""
    packed = codes.reshape(len(codes), -1, 4, 32) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    quants = np.bitwise_or.reduce(packed, axis=2).reshape(len(codes), -1)
    ones = np.full((len(codes), 16), 0x11, dtype=np.uint8)
    return np.concatenate([ones, quants, half, half], axis=1)


def _tq1_0(blocks: Array, _: StorageType) -> Array:
    """A byte is a fraction of 256 whose digits in base 3 are five codes (the last four: four)."""

    def digits(begin: int, end: int, count: int) -> Array:
        powers = np.array([3**digit for digit in range(count)], dtype=np.uint8)[:, None]
        fractions = blocks[:, None, begin:end] * powers  # modulo 256
        return ((fractions.astype(np.uint16) * 3) >> 8).astype(np.uint8).reshape(len(blocks), -1)

    codes = [digits(0, 32, 5), digits(32, 48, 5), digits(48, 52, 4)]
    return _as_q2_k(blocks[:, 52:], np.concatenate(codes, axis=1))


def _tq2_0(blocks: Array, _: StorageType) -> Array:
    shifted = blocks[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    return _as_q2_k(blocks[:, 64:], (shifted & 3).reshape(len(blocks), -1))


# Of half the scale 2^(e - 127): float16 holds 2^-24 … 2^15, and the codes may grow by 2^3.
_SMALLEST, _LARGEST, _SPARE = 128 - 24, 128 + 15, 3


def _mxfp4_target(blocks: Array) -> StorageType:
    exponents = blocks[:, 0]
    outside = (exponents < _SMALLEST) | (exponents > _LARGEST + _SPARE)
    # Blocks of zeros may have any scale, and often have the smallest.
    return DType.BF16 if (blocks[outside, 1:] & 0x77).any() else Q8_0


def _mxfp4(blocks: Array, target: StorageType) -> Array:
    codes = _E2M1[_nibbles(blocks[:, 1:], 16)]
    exponents = blocks[:, :1].astype(np.int32)
    if target is DType.BF16:
        # ldexp in float64: float32 would round the smallest on machines that flush subnormals.
        values = np.ldexp(codes.astype(np.float64), exponents - 128)
        with np.errstate(over="ignore"):
            return encode_scalars(values.astype(np.float32), DType.BF16)
    spare = np.maximum(exponents - _LARGEST, 0)
    halves = np.ldexp(1.0, exponents - spare - 128).astype("<f2").view(np.uint8)
    return np.concatenate([halves, (codes << spare.astype(np.int8)).view(np.uint8)], axis=1)


def _nvfp4(blocks: Array, _: StorageType) -> Array:
    """Blocks are: four scales (unsigned E4M3, bias 7), then 16 codes for each."""
    codes = _E2M1[_nibbles(blocks[:, 4:], 8)].reshape(-1, 4, 16)
    raw = blocks[:, :4].astype(np.int32)
    exponent, fraction = raw >> 3 & 15, raw & 7
    whole = np.where(exponent > 0, 8 + fraction, fraction)
    scales = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - 11)
    scales[blocks[:, :4] == 0x7F] = 0  # E4M3's NaN, which ggml reads as zero
    values: Array = codes * scales[:, :, None]
    return values.astype("<f2")


def _codebook(blocks: Array, _: StorageType, values: Callable[[Array], Array]) -> Array:
    with np.errstate(all="ignore"):
        return values(blocks).astype("<f2")


def _always(target: StorageType) -> Callable[[Array], StorageType]:
    return lambda _: target


TABLE_FORMATS = (
    TableFormat("iq4_nl", 32, 18, True, _always(Q8_0), _iq4_nl),
    TableFormat("iq4_xs", 256, 136, True, _always(Q8_32), _iq4_xs),
    TableFormat("tq1_0", 256, 54, True, _always(Q2_K), _tq1_0),
    TableFormat("tq2_0", 256, 66, True, _always(Q2_K), _tq2_0),
    TableFormat("mxfp4", 32, 17, True, _mxfp4_target, _mxfp4),
    TableFormat("nvfp4", 64, 36, True, _always(DType.F16), _nvfp4),
    *(
        TableFormat(
            label, 256, size, False, _always(DType.F16), functools.partial(_codebook, values=values)
        )
        for label, (size, values) in CODEBOOKS.items()
    ),
)

# Blocks converted at once: bounds the temporaries to some tens of megabytes.
_CHUNK_ELEMENTS = 1 << 20


def as_blocks(raw: memoryview, storage: TableFormat) -> Array:
    """The blocks of a stored tensor, uint8 [n, block_bytes]; a view."""
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, storage.block_bytes)


def convert(raw: memoryview, storage: TableFormat, target: StorageType) -> Array:
    """The bytes of a stored tensor as the type that `storage.choose` gave for it."""
    blocks = as_blocks(raw, storage)
    elements = blocks.shape[0] * storage.block_elements
    result = np.empty(target.bytes_for((elements,)), dtype=np.uint8)
    step = max(1, _CHUNK_ELEMENTS // storage.block_elements)
    size = target.bytes_for((storage.block_elements,))
    for start in range(0, len(blocks), step):
        part = storage.encode(np.ascontiguousarray(blocks[start : start + step]), target)
        flat = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        result[start * size : start * size + flat.size] = flat
    return result
