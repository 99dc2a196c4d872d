"""Quantized block formats, described by parameters.

Every format here is affine. A row is cut into blocks of `block_elements`, a block into groups of
`group_elements`, and within a group

    w = scale * (q - zero) - min

with q an unsigned integer of `bits` bits. With `super_scales`, scale and min are themselves
quantized: scale = d * (scale code - scale_zero), min = dmin * min code, with d and dmin in float16.
Without, each block is one group, scale = d, and min = -m where the format stores a float16 m.

Where the bits of a code sit in a block is told by `Plane`s, so that one generator per backend can
decode every format. The layouts are those of GGUF (ggml's `block_*` structures); the tests compare
each with the `gguf` package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType, decode_scalars
from crossinfer.core.records import record


@record
class Plane:
    """Bits of consecutive codes, packed several to a byte.

    Codes `first … first + count - 1` have `bits` bits here. `run` consecutive codes take the same
    bits of `run` consecutive bytes, the next `run` codes the next higher bits of the same bytes,
    and so on until the bytes are full, from bit `shift` of a byte up. The bits enter the code from
    its bit `left` up.
    """

    offset: int
    bits: int
    run: int
    count: int
    first: int = 0
    shift: int = 0
    left: int = 0

    def position(self, index: int) -> tuple[int, int]:
        """(byte within the block, shift within that byte) of code `first + index`."""
        per_byte = (8 - self.shift) // self.bits
        chunk, rest = divmod(index, self.run * per_byte)
        return (
            self.offset + chunk * self.run + rest % self.run,
            self.shift + self.bits * (rest // self.run),
        )


@record
class SuperScales:
    """Scales quantized in two levels: `planes` hold the scale codes, then the min codes."""

    planes: tuple[Plane, ...]
    zero: int = 0
    has_mins: bool = False
    signed: bool = False


@record
class BlockFormat:
    """One affine block format. Offsets and sizes are in bytes within a block."""

    label: str
    block_elements: int
    block_bytes: int
    group_elements: int
    bits: int
    zero: int
    planes: tuple[Plane, ...]
    scale_offset: int
    min_offset: int | None = None
    super_scales: SuperScales | None = None
    signed: bool = False
    """Codes are stored in two's complement; adding `zero` makes them unsigned."""

    def __hash__(self) -> int:
        # Of all fields it takes long, and the label tells formats apart.
        return hash(self.label)

    @property
    def groups(self) -> int:
        """Groups in a block."""
        return self.block_elements // self.group_elements

    def bytes_for(self, shape: Sequence[int]) -> int:
        """Bytes that a tensor takes whose last dimension is a whole number of blocks."""
        if not shape or shape[-1] % self.block_elements:
            raise ValueError(
                f"rows of {self.label} hold a multiple of {self.block_elements} elements, "
                f"but the shape is {tuple(shape)}"
            )
        return math.prod(shape) // self.block_elements * self.block_bytes


StorageType = DType | BlockFormat
"""How the elements of a tensor are stored: scalars or affine blocks."""


def _simple(
    label: str,
    bits: int,
    block_bytes: int,
    planes: tuple[Plane, ...],
    *,
    zero: int = 0,
    min_offset: int | None = None,
    signed: bool = False,
) -> BlockFormat:
    """A format of 32-element blocks with one float16 scale at their start."""
    return BlockFormat(label, 32, block_bytes, 32, bits, zero, planes, 0, min_offset, None, signed)


_SIX_BIT_PAIRS = SuperScales(
    planes=(
        Plane(offset=4, bits=6, run=4, count=4, first=0),  # scales 0-3
        Plane(offset=12, bits=4, run=4, count=4, first=4),  # scales 4-7, low bits
        Plane(offset=4, bits=2, run=4, count=4, first=4, shift=6, left=4),
        Plane(offset=8, bits=6, run=4, count=4, first=8),  # mins 0-3
        Plane(offset=12, bits=4, run=4, count=4, first=12, shift=4),  # mins 4-7, low bits
        Plane(offset=8, bits=2, run=4, count=4, first=12, shift=6, left=4),
    ),
    has_mins=True,
)

Q4_0 = _simple("q4_0", 4, 18, (Plane(2, 4, 16, 32),), zero=8)
Q4_1 = _simple("q4_1", 4, 20, (Plane(4, 4, 16, 32),), min_offset=2)
Q5_0 = _simple("q5_0", 5, 22, (Plane(6, 4, 16, 32), Plane(2, 1, 1, 32, left=4)), zero=16)
Q5_1 = _simple("q5_1", 5, 24, (Plane(8, 4, 16, 32), Plane(4, 1, 1, 32, left=4)), min_offset=2)
Q8_0 = _simple("q8_0", 8, 34, (Plane(2, 8, 32, 32),), zero=128, signed=True)

Q2_K = BlockFormat(
    label="q2_k",
    block_elements=256,
    block_bytes=84,
    group_elements=16,
    bits=2,
    zero=0,
    planes=(Plane(16, 2, 32, 256),),
    scale_offset=80,
    min_offset=82,
    super_scales=SuperScales((Plane(0, 4, 16, 32),), has_mins=True),
)
Q3_K = BlockFormat(
    label="q3_k",
    block_elements=256,
    block_bytes=110,
    group_elements=16,
    bits=3,
    zero=4,
    planes=(Plane(32, 2, 32, 256), Plane(0, 1, 32, 256, left=2)),
    scale_offset=108,
    super_scales=SuperScales((Plane(96, 4, 8, 16), Plane(104, 2, 4, 16, left=4)), zero=32),
)
Q4_K = BlockFormat(
    label="q4_k",
    block_elements=256,
    block_bytes=144,
    group_elements=32,
    bits=4,
    zero=0,
    planes=(Plane(16, 4, 32, 256),),
    scale_offset=0,
    min_offset=2,
    super_scales=_SIX_BIT_PAIRS,
)
Q5_K = BlockFormat(
    label="q5_k",
    block_elements=256,
    block_bytes=176,
    group_elements=32,
    bits=5,
    zero=0,
    planes=(Plane(48, 4, 32, 256), Plane(16, 1, 32, 256, left=4)),
    scale_offset=0,
    min_offset=2,
    super_scales=_SIX_BIT_PAIRS,
)
Q6_K = BlockFormat(
    label="q6_k",
    block_elements=256,
    block_bytes=210,
    group_elements=16,
    bits=6,
    zero=32,
    planes=(Plane(0, 4, 64, 256), Plane(128, 2, 32, 256, left=4)),
    scale_offset=208,
    super_scales=SuperScales((Plane(192, 8, 16, 16),), zero=128, signed=True),
)

BLOCK_FORMATS = (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K)


def plane_indices(planes: Sequence[Plane], codes: int) -> list[tuple[Array, Array, Array]]:
    """For each plane: the codes that it feeds, and each one's byte and shift (int arrays)."""
    result = []
    for plane in planes:
        where = [plane.position(index) for index in range(plane.count)]
        if plane.first + plane.count > codes:
            raise ValueError(f"{plane} feeds more than the {codes} codes of its block")
        result.append(
            (
                np.arange(plane.first, plane.first + plane.count),
                np.array([byte for byte, _ in where]),
                np.array([shift for _, shift in where], dtype=np.uint8),
            )
        )
    return result


def _unpack(blocks: Array, planes: Sequence[Plane], codes: int) -> Array:
    """The codes in uint8 [n, block_bytes] `blocks`, as uint8 [n, codes]."""
    result = np.zeros((len(blocks), codes), dtype=np.uint8)
    indices = plane_indices(planes, codes)
    for plane, (target, byte, shift) in zip(planes, indices, strict=True):
        bits = (blocks[:, byte] >> shift) & np.uint8((1 << plane.bits) - 1)
        result[:, target] |= bits << np.uint8(plane.left)
    return result


def unpack_codes(blocks: Array, storage: BlockFormat) -> Array:
    """The weights' codes q in uint8 [n, block_bytes] `blocks`, as uint8 [n, block_elements]."""
    codes = _unpack(blocks, storage.planes, storage.block_elements)
    return codes ^ np.uint8(1 << (storage.bits - 1)) if storage.signed else codes


def unpack_scale_codes(blocks: Array, storage: BlockFormat) -> Array:
    """The unsigned codes of two-level scales, then those of mins, as uint8 [n, codes]."""
    two_levels = storage.super_scales
    if two_levels is None:
        raise ValueError(f"{storage.label} has no scale codes: its scales are float16")
    count = storage.groups * (2 if two_levels.has_mins else 1)
    codes = _unpack(blocks, two_levels.planes, count)
    return codes ^ np.uint8(0x80) if two_levels.signed else codes


def _halves(blocks: Array, offset: int) -> Array:
    return blocks[:, offset : offset + 2].copy().view(np.float16).astype(np.float32)


def group_scales(blocks: Array, storage: BlockFormat) -> tuple[Array, Array | None]:
    """Each group's scale, and min where the format has one, as float32 [n, groups].

    Products are rounded to float32 as ggml's own dequantization rounds them.
    """
    scale = _halves(blocks, storage.scale_offset)
    if storage.super_scales is None:
        if storage.min_offset is None:
            return scale, None
        return scale, -_halves(blocks, storage.min_offset)
    two_levels = storage.super_scales
    codes = unpack_scale_codes(blocks, storage)
    scales = scale * (codes[:, : storage.groups].astype(np.float32) - two_levels.zero)
    if not two_levels.has_mins or storage.min_offset is None:
        return scales, None
    mins = _halves(blocks, storage.min_offset) * codes[:, storage.groups :].astype(np.float32)
    return scales, mins


def dequantize_blocks(blocks: Array, storage: BlockFormat) -> Array:
    """uint8 [n, block_bytes] to float32 [n, block_elements]."""
    scales, mins = group_scales(blocks, storage)
    codes = unpack_codes(blocks, storage).reshape(len(blocks), storage.groups, -1)
    values = scales[:, :, None] * (codes.astype(np.float32) - storage.zero)
    if mins is not None:
        values -= mins[:, :, None]
    return values.reshape(len(blocks), storage.block_elements)


# Blocks dequantized at once: bounds the temporaries to a few megabytes.
_CHUNK_ELEMENTS = 1 << 20


def dequantize(
    raw: memoryview | bytes | Array, storage: StorageType, shape: Sequence[int]
) -> Array:
    """A stored tensor's values as float32 of `shape`.

    `raw` holds the rows one after another, `storage.bytes_for(shape)` bytes in all. float32,
    float16 and bfloat16 convert without loss; blocks give what ggml's dequantization gives.
    """
    expected = storage.bytes_for(shape)
    flat = np.frombuffer(raw, dtype=np.uint8)
    if flat.size != expected:
        raise ValueError(f"{storage.label} {tuple(shape)} takes {expected} bytes, not {flat.size}")
    if isinstance(storage, DType):
        return decode_scalars(flat, storage).reshape(shape)
    blocks = flat.reshape(-1, storage.block_bytes)
    result = np.empty((len(blocks), storage.block_elements), dtype=np.float32)
    step = max(1, _CHUNK_ELEMENTS // storage.block_elements)
    for start in range(0, len(blocks), step):
        result[start : start + step] = dequantize_blocks(blocks[start : start + step], storage)
    return result.reshape(shape)
