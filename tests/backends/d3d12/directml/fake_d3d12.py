"""As much of Direct3D 12 as DirectML's operators touch, strict about lifetimes and states.

Lists run when the test says so: until then, what they use may not be released.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.backends.d3d12.directml.fake_directml import Bindings, Bound

from crossinfer.backends.d3d12 import interfaces as d3d12
from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.descriptors import DescriptorPool
from crossinfer.backends.d3d12.directml.interfaces import IDMLOperatorInitializer

COMMON, UNORDERED_ACCESS, SHADER_READ = 0, 0x8, 0x40
_STEP = 32
_CPU_BASE, _GPU_BASE, _HEAP_SPACE = 1 << 20, 1 << 40, 1 << 19


class FakeD3D12:
    """A device, its heaps, buffers and lists; the Host of operators, and DirectML's Platform."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.in_flight: set[FakeObject] = set()
        self.runs: list[FakeObject] = []
        self._heaps: list[FakeObject] = []
        made = FakeObject(
            world,
            d3d12.ID3D12Device,
            {
                "CreateDescriptorHeap": self._create_heap,
                "GetDescriptorHandleIncrementSize": lambda _: _STEP,
            },
        )
        self._device = ComObject(made.address, d3d12.ID3D12Device, Abi.SYSV)
        self.descriptors = DescriptorPool(self._device)

    @property
    def device(self) -> ComObject:
        return self._device

    def make_buffer(self, size: int) -> ComObject:
        made = FakeObject(self.world, d3d12.ID3D12Resource, {}, size=size)
        made.on_release = self._check_release(made)
        return self._com(made)

    def command_list(self) -> FakeObject:
        """A list that is recording."""
        made = FakeObject(self.world, d3d12.ID3D12GraphicsCommandList, {}, heap=None)
        made.facts |= {"used": [], "dispatches": [], "states": {}, "descriptors": set()}

        def set_heaps(count: int, heaps: int) -> None:
            assert count == 1
            address = ctypes.c_void_p.from_address(heaps).value
            assert address is not None
            made.facts["heap"] = self.world.at(address)

        made.replace(
            "SetDescriptorHeaps",
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p),
            lambda _, count, heaps: set_heaps(count, heaps),
        )
        return made

    def run(self, record: Callable[[ComObject], None]) -> None:
        commands = self.command_list()
        record(self._com(commands))
        self.start(commands)
        self.finish()

    def start(self, commands: FakeObject) -> None:
        """Everything that the list uses is in flight from here on."""
        self.in_flight |= {*commands.facts["used"]}
        self.runs.append(commands)
        for used in commands.facts["used"]:
            if used.references < 1:
                self.world.complaints.append(f"{used} was released before its list ran")

    def finish(self) -> None:
        """All lists that were started have finished."""
        for commands in self.runs:
            for dispatchable in commands.facts["dispatches"]:
                if dispatchable.interface is IDMLOperatorInitializer:
                    for operator in dispatchable.facts["operators"]:
                        operator.facts["initialised"] = True
        self.runs.clear()
        self.in_flight.clear()

    def com(self, commands: FakeObject) -> ComObject:
        """The list as the code under test holds it, with a reference of its own."""
        return ComObject.adopt(commands.address, commands.interface, Abi.SYSV)

    # The Platform.

    def of(self, device: int) -> FakeD3D12:
        """The platform of the device at an address: this one is known."""
        assert device == self._device.address
        return self

    def close(self) -> None:
        assert not self.in_flight, "DirectML was released while a list of it ran"

    def check_range(self, cpu: int, gpu: int, count: int) -> None:
        number, first = divmod(cpu - _CPU_BASE, _HEAP_SPACE)
        heap = self._heaps[number]
        assert gpu - _GPU_BASE == cpu - _CPU_BASE, "the two handles are of other descriptors"
        assert first // _STEP + count <= heap.facts["count"], "the range leaves the heap"
        self.world.at(heap.address)

    def check_memory(self, bound: Bound) -> None:
        size = self.world.at(bound.resource).facts["size"]
        assert bound.offset + bound.size <= size, "a binding leaves its resource"

    def dispatch(self, commands: int, dispatchable: FakeObject, table: FakeObject) -> None:
        recording = self.world.at(commands)
        heap = recording.facts["heap"]
        assert heap is not None, "no descriptor heap is set on the list"
        number = (table.facts["gpu"] - _GPU_BASE) // _HEAP_SPACE
        assert self._heaps[number] is heap, "another descriptor heap is set on the list"
        first = (table.facts["gpu"] - _GPU_BASE) % _HEAP_SPACE // _STEP
        taken = set(range(first, first + table.facts["count"]))
        written = [recording.facts, *(running.facts for running in self.runs)]
        others = {entry for facts in written for entry in facts["descriptors"]}
        mine = {(heap.address, entry) for entry in taken}
        assert not mine & others, "descriptors of another dispatch are overwritten"
        recording.facts["descriptors"] |= mine
        bindings: Bindings = table.facts["bindings"]
        resources = [self.world.at(bound.resource) for bound in bindings.all]
        for resource in resources:
            state = recording.facts["states"].setdefault(resource.address, UNORDERED_ACCESS)
            assert state in (COMMON, UNORDERED_ACCESS), f"a resource is in state {state:#x}"
        recording.facts["used"] += [dispatchable, heap, *resources]
        recording.facts["dispatches"].append(dispatchable)
        for used in (dispatchable, heap):
            used.on_release = self._check_release(used)

    def _create_heap(self, description: int, iid: int, place: int) -> int:
        assert ctypes.string_at(iid, 16) == bytes(d3d12.ID3D12DescriptorHeap.iid)
        kind, count, flags, _ = (ctypes.c_uint32 * 4).from_address(description)
        assert (kind, flags) == (0, 1), "the heap is not one that shaders see"
        start = len(self._heaps) * _HEAP_SPACE

        def handle(base: int) -> Callable[[int], int]:
            def store(result: int) -> int:
                ctypes.c_uint64.from_address(result).value = base + start
                return result

            return store

        made = FakeObject(
            self.world,
            d3d12.ID3D12DescriptorHeap,
            {
                "GetCPUDescriptorHandleForHeapStart": handle(_CPU_BASE),
                "GetGPUDescriptorHandleForHeapStart": handle(_GPU_BASE),
            },
            count=count,
        )
        self._heaps.append(made)
        return made.give(place)

    def _com(self, made: FakeObject) -> ComObject:
        return ComObject(made.address, made.interface, Abi.SYSV, self._device.references)

    def _check_release(self, made: FakeObject) -> Callable[[], None]:
        def check() -> None:
            if made in self.in_flight:
                self.world.complaints.append(f"{made} was released while a list that uses it ran")

        return check
