"""Descriptors on loan: ranges that never overlap, and come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.d3d12.directml.fake_com import World
from tests.backends.d3d12.directml.fake_d3d12 import FakeD3D12

from crossinfer.backends.d3d12.descriptors import HEAP_DESCRIPTORS, DescriptorLoan, DescriptorPool

STEP = 32


def entries(loan: DescriptorLoan, count: int) -> range:
    """Where its descriptors lie."""
    taken = loan.take(count)
    assert taken.gpu - taken.cpu == (1 << 40) - (1 << 20), "both handles are of the same entries"
    return range(taken.cpu, taken.cpu + count * STEP, STEP)


def lent(pool: DescriptorPool, count: int) -> tuple[DescriptorLoan, set[int]]:
    loan = pool.lend(count)
    return loan, set(entries(loan, count))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.one_of(st.integers(0, 1500), st.integers(-20, -1)),
        min_size=1,
        max_size=60,
    )
)
def test_loans_do_not_overlap(actions: list[int]) -> None:
    """A number lends as many, a negative one gives back one of the loans."""
    world = World()
    pool = DescriptorPool(FakeD3D12(world).device)
    loans: list[tuple[DescriptorLoan, set[int]]] = []
    for action in actions:
        if action >= 0:
            loans.append(lent(pool, action))
            assert all(not loans[-1][1] & others for _, others in loans[:-1])
        elif loans:
            del loans[action % len(loans)]
    loans.clear()
    heaps = world.calls.count("ID3D12Device.CreateDescriptorHeap")
    whole = [pool.lend(HEAP_DESCRIPTORS) for _ in range(heaps)]
    again = world.calls.count("ID3D12Device.CreateDescriptorHeap")
    assert again == heaps, "everything came back, in one piece"
    assert len(whole) == heaps
    assert world.complaints == []


def test_a_loan_that_no_heap_has_room_for_gets_one_of_its_own() -> None:
    pool = DescriptorPool(FakeD3D12(World()).device)
    assert len(entries(pool.lend(3 * HEAP_DESCRIPTORS // 2), 3 * HEAP_DESCRIPTORS // 2)) == 6144


def test_a_loan_ends() -> None:
    loan = DescriptorPool(FakeD3D12(World()).device).lend(4)
    loan.take(3)
    with pytest.raises(AssertionError, match="made for all"):
        loan.take(2)
