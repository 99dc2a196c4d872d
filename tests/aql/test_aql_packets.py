"""Packets, bit by bit as the HSA specification lays them out, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.aql.packets import (
    BARRIER_AND,
    KERNEL_DISPATCH,
    BarrierAnd,
    FenceScope,
    KernelDispatch,
    Packet,
    PacketType,
    decode_packet,
    encode_header,
    encode_packets,
)

ADDRESS = st.integers(1, 2**64 - 1)
FENCES = {"acquire": st.sampled_from(FenceScope), "release": st.sampled_from(FenceScope)}
DISPATCHES = st.builds(
    KernelDispatch,
    kernel_object=ADDRESS,
    kernarg_address=ADDRESS,
    grid_size=st.tuples(*[st.integers(1, 2**32 - 1)] * 3),
    workgroup_size=st.tuples(*[st.integers(1, 2**16 - 1)] * 3),
    private_segment_size=st.integers(0, 2**32 - 1),
    group_segment_size=st.integers(0, 2**32 - 1),
    barrier=st.booleans(),
    completion_signal=st.integers(0, 2**64 - 1),
    **FENCES,
)
BARRIERS = st.builds(
    BarrierAnd,
    dependencies=st.lists(ADDRESS, max_size=5).map(tuple),
    barrier=st.booleans(),
    completion_signal=st.integers(0, 2**64 - 1),
    **FENCES,
)


@settings(deadline=None)
@given(st.lists(DISPATCHES | BARRIERS, max_size=5))
def test_packets_come_back(packets: list[Packet]) -> None:
    raw = encode_packets(packets)
    assert raw.shape == (len(packets), 64)
    assert [decode_packet(row) for row in raw] == packets


def test_a_dispatch_lies_where_the_specification_says() -> None:
    packet = KernelDispatch(
        kernel_object=0x1122334455667788,
        kernarg_address=0x99AABBCCDDEEFF00,
        grid_size=(0x01020304, 0x05060708, 0x090A0B0C),
        workgroup_size=(0x1112, 0x1314, 0x1516),
        private_segment_size=0x21222324,
        group_segment_size=0x31323334,
        barrier=True,
        completion_signal=0x4142434445464748,
    )
    expected = (
        "0215 0300 1211 1413 1615 0000 04030201 08070605 0c0b0a09 24232221 34333231 "
        "8877665544332211 00ffeeddccbbaa99 0000000000000000 4847464544434241"
    )
    assert encode_packets([packet]).tobytes() == bytes.fromhex(expected)


def test_a_barrier_lies_where_the_specification_says() -> None:
    packet = BarrierAnd((0x0102030405060708, 0x1112), completion_signal=0x2122)
    expected = (
        "0314 0000 00000000 0807060504030201 1211000000000000 0000000000000000 "
        "0000000000000000 0000000000000000 0000000000000000 2221000000000000"
    )
    assert encode_packets([packet]).tobytes() == bytes.fromhex(expected)


def test_headers() -> None:
    assert KERNEL_DISPATCH.itemsize == BARRIER_AND.itemsize == 64
    assert encode_header(PacketType.KERNEL_DISPATCH, barrier=True) == 0x1502
    none = FenceScope.NONE
    assert encode_header(PacketType.INVALID, acquire=none, release=none) == 1
    assert encode_header(PacketType.BARRIER_AND, acquire=FenceScope.AGENT, release=none) == 0x203


@pytest.mark.parametrize(("grid", "dimensions"), [((5, 1, 1), 1), ((5, 2, 1), 2), ((1, 1, 2), 3)])
def test_setup_is_the_number_of_dimensions(grid: tuple[int, int, int], dimensions: int) -> None:
    row = encode_packets([KernelDispatch(1, 1, grid)]).reshape(-1).view(KERNEL_DISPATCH)[0]
    assert row["setup"] == dimensions


def test_an_empty_slot_holds_no_packet() -> None:
    slot = np.zeros(64, dtype=np.uint8)
    slot[0] = PacketType.INVALID
    assert decode_packet(slot) is None
    slot[0] = 5
    with pytest.raises(ValueError, match="type 5"):
        decode_packet(slot)


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (KernelDispatch(1, 1, (0, 1, 1)), "size below 1"),
        (KernelDispatch(1, 1, (1, 1, 1), (1, 0, 1)), "size below 1"),
        (KernelDispatch(1, 1, (2**32, 1, 1)), "too large"),
        (BarrierAnd((1, 2, 3, 4, 5, 6)), "at most 5"),
    ],
)
def test_packets_that_cannot_be(packet: Packet, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_packets([packet])
