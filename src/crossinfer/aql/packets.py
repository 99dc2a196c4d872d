"""The 64-byte packets that a queue holds: kernel dispatch and barrier-AND.

Both start with a 16-bit header (type, barrier bit, fence scopes) and end with the address of a
completion signal, or 0. With the barrier bit, a packet starts only after all packets before it have
completed. A barrier-AND packet completes once each of its signals has been seen at 0, and no packet
behind it starts before that.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record

PACKET_BYTES = 64
MAX_DEPENDENCIES = 5

BARRIER_BIT = 8
_ACQUIRE_SHIFT = 9
_RELEASE_SHIFT = 11

Size3 = tuple[int, int, int]


class PacketType(enum.IntEnum):
    """The low byte of a header. A slot whose packet is not there yet is INVALID."""

    VENDOR_SPECIFIC = 0
    INVALID = 1
    KERNEL_DISPATCH = 2
    BARRIER_AND = 3


class FenceScope(enum.IntEnum):
    """Who must see memory at a packet's start (acquire) and at its end (release)."""

    NONE = 0
    AGENT = 1
    SYSTEM = 2


# The same for writing: NumPy takes longer for each field than these for all.
_DISPATCH_FIELDS = struct.Struct("<HH3H2x3IIIQQ8xQ")
_BARRIER_FIELDS = struct.Struct("<H6x5Q8xQ")

KERNEL_DISPATCH = np.dtype(
    [
        ("header", np.uint16),
        ("setup", np.uint16),
        ("workgroup_size", np.uint16, 3),
        ("reserved0", np.uint16),
        ("grid_size", np.uint32, 3),
        ("private_segment_size", np.uint32),
        ("group_segment_size", np.uint32),
        ("kernel_object", np.uint64),
        ("kernarg_address", np.uint64),
        ("reserved2", np.uint64),
        ("completion_signal", np.uint64),
    ]
)

BARRIER_AND = np.dtype(
    [
        ("header", np.uint16),
        ("reserved0", np.uint16),
        ("reserved1", np.uint32),
        ("dependencies", np.uint64, MAX_DEPENDENCIES),
        ("reserved2", np.uint64),
        ("completion_signal", np.uint64),
    ]
)


@record
class KernelDispatch:
    """Runs a kernel over a grid, whose sizes are in work-items; sizes of segments in bytes."""

    kernel_object: int
    kernarg_address: int
    grid_size: Size3
    workgroup_size: Size3 = (1, 1, 1)
    private_segment_size: int = 0
    group_segment_size: int = 0
    barrier: bool = False
    completion_signal: int = 0
    acquire: FenceScope = FenceScope.SYSTEM
    release: FenceScope = FenceScope.SYSTEM


@record
class BarrierAnd:
    """Waits for signals, given by address; without any, it only carries its barrier and signal."""

    dependencies: tuple[int, ...] = ()
    barrier: bool = False
    completion_signal: int = 0
    acquire: FenceScope = FenceScope.SYSTEM
    release: FenceScope = FenceScope.SYSTEM


Packet = KernelDispatch | BarrierAnd


def encode_header(
    kind: PacketType,
    *,
    barrier: bool = False,
    acquire: FenceScope = FenceScope.SYSTEM,
    release: FenceScope = FenceScope.SYSTEM,
) -> int:
    """The header of a packet, as the 16-bit number that is stored."""
    return kind | barrier << BARRIER_BIT | acquire << _ACQUIRE_SHIFT | release << _RELEASE_SHIFT


def encode_packets(packets: Sequence[Packet]) -> Array:
    """The packets as uint8 [n, 64], ready to be copied into a ring. Raises ValueError."""
    raw = bytearray(len(packets) * PACKET_BYTES)
    for index, packet in enumerate(packets):
        if isinstance(packet, KernelDispatch):
            _encode_dispatch(packet, raw, index * PACKET_BYTES)
        else:
            _encode_barrier(packet, raw, index * PACKET_BYTES)
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, PACKET_BYTES)


def decode_packet(raw: Array) -> Packet | None:
    """The packet in 64 bytes; None for an INVALID one. Raises ValueError for other types."""
    flat = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    header = int(flat[:2].view(np.uint16)[0])
    fences: dict[str, Any] = {
        "barrier": bool(header >> BARRIER_BIT & 1),
        "acquire": FenceScope(header >> _ACQUIRE_SHIFT & 3),
        "release": FenceScope(header >> _RELEASE_SHIFT & 3),
    }
    match header & 0xFF:
        case PacketType.INVALID:
            return None
        case PacketType.KERNEL_DISPATCH:
            return _decode_dispatch(flat.view(KERNEL_DISPATCH)[0], fences)
        case PacketType.BARRIER_AND:
            return _decode_barrier(flat.view(BARRIER_AND)[0], fences)
        case other:
            raise ValueError(f"a packet has the type {other}, which is not known here")


def _encode_dispatch(packet: KernelDispatch, raw: bytearray, at: int) -> None:
    _, y, z = packet.grid_size
    if min(packet.grid_size) < 1 or min(packet.workgroup_size) < 1:
        raise ValueError(f"a dispatch has the grid {packet.grid_size}, with a size below 1")
    if max(packet.grid_size) >> 32 or max(packet.workgroup_size) >> 16:
        raise ValueError(f"a dispatch has the grid {packet.grid_size}, too large for a packet")
    _DISPATCH_FIELDS.pack_into(
        raw,
        at,
        _header_of(packet, PacketType.KERNEL_DISPATCH),
        3 if z > 1 else 2 if y > 1 else 1,  # the number of dimensions
        *packet.workgroup_size,
        *packet.grid_size,
        packet.private_segment_size,
        packet.group_segment_size,
        packet.kernel_object,
        packet.kernarg_address,
        packet.completion_signal,
    )


def _encode_barrier(packet: BarrierAnd, raw: bytearray, at: int) -> None:
    count = len(packet.dependencies)
    if count > MAX_DEPENDENCIES:
        raise ValueError(f"a barrier-AND packet waits for at most 5 signals, not {count}")
    _BARRIER_FIELDS.pack_into(
        raw,
        at,
        _header_of(packet, PacketType.BARRIER_AND),
        *packet.dependencies,
        *(0,) * (MAX_DEPENDENCIES - count),
        packet.completion_signal,
    )


def _header_of(packet: Packet, kind: PacketType) -> int:
    return encode_header(
        kind, barrier=packet.barrier, acquire=packet.acquire, release=packet.release
    )


_DISPATCH_NUMBERS = (
    "kernel_object",
    "kernarg_address",
    "private_segment_size",
    "group_segment_size",
    "completion_signal",
)


def _decode_dispatch(row: Array, fences: dict[str, Any]) -> KernelDispatch:
    sizes: dict[str, Any] = {
        name: tuple(map(int, row[name])) for name in ("grid_size", "workgroup_size")
    }
    numbers: dict[str, Any] = {name: int(row[name]) for name in _DISPATCH_NUMBERS}
    return KernelDispatch(**numbers, **sizes, **fences)


def _decode_barrier(row: Array, fences: dict[str, Any]) -> BarrierAnd:
    dependencies = tuple(int(address) for address in row["dependencies"] if address)
    return BarrierAnd(dependencies, completion_signal=int(row["completion_signal"]), **fences)
