"""COM from Python: references that are counted, calls that are named, three calling conventions."""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.backends.d3d12.directml.fake_com import FakeObject, World

from crossinfer.backends.d3d12 import structures
from crossinfer.backends.d3d12.abi import MOST_ARGUMENTS, Abi, thunk
from crossinfer.backends.d3d12.com import ComError, ComObject, Interface, IUnknown, References
from crossinfer.backends.d3d12.hresult import hresult_name
from crossinfer.backends.d3d12.interfaces import ID3D12Device, ID3D12GraphicsCommandList

NATIVE = Abi.WINDOWS if sys.platform == "win32" else Abi.SYSV
E_NOINTERFACE = -0x7FFFBFFE
IThing = Interface(
    "IThing",
    "12345678-1234-1234-1234-123456789abc",
    IUnknown,
    """
    3 Fail u
    4 Add u u =u
    5 Make p p
    6 Note q -
    """,
)


class Thing:
    """A fake with one method of each kind; each child that it makes is another fake."""

    def __init__(self, world: World) -> None:
        self.noted: list[int] = []
        self.children: list[FakeObject] = []
        self.world = world
        self.fake = FakeObject(
            world,
            IThing,
            {
                "QueryInterface": lambda iid, place: self._query(iid, place),
                "Fail": lambda code: ctypes.c_int32(code).value,
                "Add": lambda a, b: a + b,
                "Make": lambda iid, place: self._make(iid, place),
                "Note": self.noted.append,
            },
        )

    def _query(self, iid: int, place: int) -> int:
        if ctypes.string_at(iid, 16) != bytes(IThing.iid):
            return E_NOINTERFACE
        self.fake.references += 1
        return self.fake.give(place)

    def _make(self, iid: int, place: int) -> int:
        assert ctypes.string_at(iid, 16) == bytes(IUnknown.iid)
        self.children.append(FakeObject(self.world, IUnknown, {}))
        return self.children[-1].give(place)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def thing(world: World) -> Thing:
    return Thing(world)


def test_methods_are_called_by_their_slots(world: World, thing: Thing) -> None:
    held = ComObject(thing.fake.address, IThing, NATIVE)
    assert held.Add(3, 4) == 7
    held.Note(1 << 40)
    assert thing.noted == [1 << 40]
    with pytest.raises(ComError, match=r"IThing\.Fail returned E_OUTOFMEMORY \(0x8007000E\)"):
        held.Fail(0x8007000E)
    assert held.Fail(1) == 1  # S_FALSE is no failure
    with pytest.raises(AttributeError, match="IThing has no Absent"):
        held.Absent()
    assert world.complaints == []


def test_a_reference_is_released_once(world: World, thing: Thing) -> None:
    held = ComObject(thing.fake.address, IThing, NATIVE)
    held.Add(1, 1)
    for _ in range(3):
        held.release()
    assert thing.fake.references == 0
    with pytest.raises(ValueError, match="IThing was released"):
        held.Add(1, 1)
    del held
    gc.collect()
    assert thing.fake.references == 0
    assert world.complaints == []


def test_what_python_forgets_is_released(thing: Thing) -> None:
    held = ComObject.adopt(thing.fake.address, IThing, NATIVE)
    assert thing.fake.references == 2
    held.Add(1, 1)  # a method that is kept must not keep its object
    del held
    assert thing.fake.references == 1


def test_what_is_made_of_an_object_goes_with_it(world: World, thing: Thing) -> None:
    held = ComObject(thing.fake.address, IThing, NATIVE)
    children = [held.create("Make", IUnknown) for _ in range(3)]
    assert len(held.references) == 4
    children[1].release()
    assert [child.references for child in thing.children] == [1, 0, 1]
    held.references.release()
    assert len(held.references) == 0
    assert all(made.references == 0 for made in [thing.fake, *thing.children])
    assert world.complaints == []


def test_abandoned_references_are_kept_for_ever(thing: Thing) -> None:
    held = ComObject(thing.fake.address, IThing, NATIVE)
    child = held.create("Make", IUnknown)
    held.references.abandon()
    held.release()
    del held, child
    gc.collect()
    assert thing.fake.references == thing.children[0].references == 1


def test_other_interfaces_are_asked_for(thing: Thing) -> None:
    held = ComObject(thing.fake.address, IThing, NATIVE, References())
    again = held.query(IThing)
    assert again is not None
    assert thing.fake.references == 2
    again.release()
    assert held.query(ID3D12Device) is None
    assert thing.fake.references == 1


def test_interfaces_extend_others_and_no_slot_is_named_twice() -> None:
    methods = ID3D12GraphicsCommandList.methods
    assert methods["Release"][0] == 2
    assert methods["SetName"][0] == 6
    assert methods["Dispatch"][0] == 14
    slots = [slot for slot, _ in methods.values()]
    assert len(set(slots)) == len(slots)


def test_results_have_names() -> None:
    assert hresult_name(-2005270523) == "DXGI_ERROR_DEVICE_REMOVED (0x887A0005)"
    assert hresult_name(-0x7EDCBA99) == "HRESULT 0x81234567"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("D3D12_COMMAND_QUEUE_DESC", 16),
        ("D3D12_HEAP_PROPERTIES", 20),
        ("D3D12_RESOURCE_DESC", 56),
        ("D3D12_RESOURCE_BARRIER", 32),
        ("D3D12_ROOT_PARAMETER", 32),
        ("D3D12_ROOT_SIGNATURE_DESC", 40),
        ("D3D12_COMPUTE_PIPELINE_STATE_DESC", 56),
        ("D3D12_MESSAGE", 32),
        ("D3D12_AUTO_BREADCRUMB_NODE", 80),
        ("DXGI_ADAPTER_DESC1", 312),
        ("DXGI_QUERY_VIDEO_MEMORY_INFO", 32),
    ],
)
def test_structures_have_the_documented_sizes(name: str, size: int) -> None:
    assert ctypes.sizeof(getattr(structures, name)) == size


def _windows_function(count: int) -> bytes:
    """x86-64 code under Windows' convention: stores its arguments after the first where that
    points, writes over the 32 bytes that are its own, and returns its stack pointer.
    """
    code = b"\x48\x89\x11\x4c\x89\x41\x08\x4c\x89\x49\x10"  # rdx, r8, r9
    for index in range(4, count):
        code += b"\x48\x8b\x84\x24" + struct.pack("<I", 8 + 8 * index)
        code += b"\x48\x89\x81" + struct.pack("<I", 8 * (index - 1))
    for offset in (8, 16, 24, 32):
        code += b"\x48\x89\x4c\x24" + bytes([offset])
    return code + b"\x48\x89\xe0\xc3"


@pytest.fixture
def executable() -> Callable[[bytes], int]:
    """Puts code where it can run."""
    if platform.machine() != "x86_64" or sys.platform == "win32":
        pytest.skip("The convention is bridged on x86-64 without Windows.")
    kept: list[Any] = []

    def place(code: bytes) -> int:
        memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        kept.append(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    return place


@pytest.mark.parametrize("count", range(4, MOST_ARGUMENTS))
def test_arguments_arrive_under_windows_convention(
    executable: Callable[[bytes], int], count: int
) -> None:
    target = executable(_windows_function(count))
    call = Abi.MS.function(
        target, ctypes.c_uint64, (ctypes.c_void_p, *[ctypes.c_uint64] * (count - 1))
    )
    seen = (ctypes.c_uint64 * (count - 1))()
    given = [0x1111_0000_0000_0000 * (n + 1) % (1 << 64) + n for n in range(count - 1)]
    stack = call(ctypes.addressof(seen), *given)
    assert list(seen) == given
    assert stack % 16 == 8  # as after a call of a stack that was aligned


def test_thunks_fit_into_their_places() -> None:
    assert max(len(thunk(count)) for count in range(MOST_ARGUMENTS)) <= 256
