"""A DirectML of our own, strict where the real one removes the device.

Its objects are COM objects with the header's tables and the convention of a C++ library on Linux.
What the dispatches do is left to the platform: `fake_d3d12` only checks, another computes.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.backends.d3d12.directml.fake_descriptions import SeenOperator, seen_operator
from tests.backends.d3d12.directml.layouts import LAYOUTS, constant, read, read_array

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.directml import interfaces as dml
from crossinfer.backends.d3d12.directml.library import Library

E_NOTIMPL = -0x7FFFBFFF

_CREATE_DEVICE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_PROPERTIES = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_NONE, _BUFFER = constant("BINDING_TYPE_NONE"), constant("BINDING_TYPE_BUFFER")


@dataclasses.dataclass(frozen=True)
class Needs:
    """Binding properties: descriptors, temporary and persistent bytes."""

    descriptors: int
    temporary: int = 0
    persistent: int = 0


@dataclasses.dataclass(frozen=True)
class Bound:
    """A DML_BUFFER_BINDING."""

    resource: int
    offset: int
    size: int


@dataclasses.dataclass
class Bindings:
    """What a table was told to bind."""

    inputs: list[Bound | None] | None = None
    outputs: list[Bound | None] | None = None
    temporary: Bound | None = None
    persistent: Bound | None = None

    @property
    def all(self) -> list[Bound]:
        given = [*(self.inputs or ()), *(self.outputs or ()), self.temporary, self.persistent]
        return [bound for bound in given if bound is not None]


class Platform(Protocol):
    """The Direct3D 12 device below."""

    def check_range(self, cpu: int, gpu: int, count: int) -> None:
        """Raises AssertionError unless they are entries of a shader-visible heap, and the same."""

    def check_memory(self, bound: Bound) -> None:
        """Raises AssertionError unless the resource lives and has these bytes."""

    def dispatch(self, commands: int, dispatchable: FakeObject, table: FakeObject) -> None:
        """Record it. Raises AssertionError for a list that is not ready for it."""

    def close(self) -> None:
        """The last reference to the IDMLDevice has gone."""


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """What compiled operators and initialisers take, what cannot compile, the types it knows."""

    needs: Callable[[SeenOperator], Needs] = lambda _: Needs(4, 1024, 512)
    initialiser_needs: Needs = Needs(2, 256)
    refuses: Callable[[SeenOperator], bool] = lambda _: False
    data_types: Sequence[str] = ("FLOAT32", "FLOAT16")


class FakeDirectML:
    """The library. `platform_of` makes the platform of an ID3D12Device."""

    def __init__(
        self,
        world: World,
        platform_of: Callable[[int], Platform],
        behaviour: Behaviour = Behaviour(),
    ) -> None:
        self.world = world
        self._platform_of = platform_of
        self.behaviour = behaviour
        self.create_device = _CREATE_DEVICE(self._create_device)

    @property
    def library(self) -> Library:
        address = ctypes.cast(self.create_device, ctypes.c_void_p).value
        assert address is not None
        return Library(address, Abi.SYSV)

    def _create_device(self, device: int, flags: int, level: int, iid: int, place: int) -> int:
        del flags
        if level != constant("FEATURE_LEVEL_2_0"):
            self.world.complaints.append(f"feature level {level:#x} was asked for")
        made = _FakeDevice(self.world, self._platform_of(device), self.behaviour)
        return made.give(iid, place)


class _FakeDevice:
    """An IDMLDevice and what it makes."""

    def __init__(self, world: World, platform: Platform, behaviour: Behaviour) -> None:
        self.world = world
        self._platform = platform
        self._behaviour = behaviour
        self._types = {constant(f"TENSOR_DATA_TYPE_{name}") for name in behaviour.data_types}

    def give(self, iid: int, place: int) -> int:
        self._expect(iid, "IDMLDevice")
        made = FakeObject(
            self.world,
            dml.IDMLDevice,
            {
                "CheckFeatureSupport": self._check_feature,
                "CreateOperator": self._create_operator,
                "CompileOperator": self._compile,
                "CreateOperatorInitializer": self._create_initialiser,
                "CreateCommandRecorder": self._create_recorder,
                "CreateBindingTable": self._create_table,
            },
        )
        made.on_release = self._platform.close
        return made.give(place)

    def _check_feature(self, feature: int, size: int, query: int, room: int, answer: int) -> int:
        assert feature == constant("FEATURE_TENSOR_DATA_TYPE_SUPPORT")
        assert (size, room) == (4, 4)
        asked = read(query, "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT")["DataType"]
        ctypes.c_int32.from_address(answer).value = asked in self._types
        return 0

    def _create_operator(self, description: int, iid: int, place: int) -> int:
        self._expect(iid, "IDMLOperator")
        seen = seen_operator(description)
        return FakeObject(self.world, dml.IDMLOperator, {}, seen=seen).give(place)

    def _compile(self, operator: int, flags: int, iid: int, place: int) -> int:
        self._expect(iid, "IDMLCompiledOperator")
        half_sums = constant("EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION")
        assert not flags & half_sums, "half-precision sums were allowed"
        seen: SeenOperator = self.world.at(operator).facts["seen"]
        if self._behaviour.refuses(seen):
            return E_NOTIMPL
        made = self._dispatchable(dml.IDMLCompiledOperator, self._behaviour.needs(seen))
        made.facts |= {"seen": seen, "initialised": False}
        return made.give(place)

    def _create_initialiser(self, count: int, operators: int, iid: int, place: int) -> int:
        self._expect(iid, "IDMLOperatorInitializer")
        addresses = (ctypes.c_void_p * count).from_address(operators)
        compiled = [self.world.at(address) for address in addresses if address]
        needs = self._behaviour.initialiser_needs
        made = self._dispatchable(dml.IDMLOperatorInitializer, needs)
        made.facts["operators"] = compiled
        return made.give(place)

    def _dispatchable(self, interface: Any, needs: Needs) -> FakeObject:
        made = FakeObject(self.world, interface, {}, needs=needs)

        def properties(place: int, this: int) -> int:
            """A C++ method that returns a structure: where to put it comes before the object."""
            if this != made.address:
                self.world.complaints.append("GetBindingProperties got another object")
            offsets = LAYOUTS["structures"]["DML_BINDING_PROPERTIES"]["fields"]
            for field, value in (
                ("RequiredDescriptorCount", needs.descriptors),
                ("TemporaryResourceSize", needs.temporary),
                ("PersistentResourceSize", needs.persistent),
            ):
                offset, size = offsets[field]
                ctypes.memmove(place + offset, value.to_bytes(size, "little"), size)
            return place

        made.replace("GetBindingProperties", _PROPERTIES, properties)
        return made

    def _create_recorder(self, iid: int, place: int) -> int:
        self._expect(iid, "IDMLCommandRecorder")
        methods = {"RecordDispatch": self._record}
        return FakeObject(self.world, dml.IDMLCommandRecorder, methods).give(place)

    def _create_table(self, description: int, iid: int, place: int) -> int:
        self._expect(iid, "IDMLBindingTable")
        fields = read(description, "DML_BINDING_TABLE_DESC")
        dispatchable = self.world.at(fields["Dispatchable"])
        needed = dispatchable.facts["needs"].descriptors
        assert fields["SizeInDescriptors"] >= needed, "the table has too few descriptors"
        self._platform.check_range(
            fields["CPUDescriptorHandle"],
            fields["GPUDescriptorHandle"],
            fields["SizeInDescriptors"],
        )
        bindings = Bindings()

        def bind_inputs(count: int, place: int) -> None:
            bindings.inputs = self._bound(place, count)

        def bind_outputs(count: int, place: int) -> None:
            bindings.outputs = self._bound(place, count)

        def bind_temporary(place: int) -> None:
            (bindings.temporary,) = self._bound(place, 1)

        def bind_persistent(place: int) -> None:
            (bindings.persistent,) = self._bound(place, 1)

        made = FakeObject(
            self.world,
            dml.IDMLBindingTable,
            {
                "BindInputs": bind_inputs,
                "BindOutputs": bind_outputs,
                "BindTemporaryResource": bind_temporary,
                "BindPersistentResource": bind_persistent,
            },
            dispatchable=dispatchable,
            bindings=bindings,
            gpu=fields["GPUDescriptorHandle"],
            count=fields["SizeInDescriptors"],
        )
        return made.give(place)

    def _bound(self, place: int, count: int) -> list[Bound | None]:
        found: list[Bound | None] = []
        for fields in read_array(place, "DML_BINDING_DESC", count):
            if fields["Type"] == _NONE:
                found.append(None)
                continue
            assert fields["Type"] == _BUFFER
            buffer = read(fields["Desc"], "DML_BUFFER_BINDING")
            bound = Bound(buffer["Buffer"], buffer["Offset"], buffer["SizeInBytes"])
            assert bound.size % 4 == 0, "a binding is no multiple of four bytes"
            self._platform.check_memory(bound)
            found.append(bound)
        return found

    def _record(self, commands: int, dispatchable: int, table: int) -> None:
        runs, bound = self.world.at(dispatchable), self.world.at(table)
        assert bound.facts["dispatchable"] is runs, "the table is another dispatchable's"
        if runs.interface is dml.IDMLOperatorInitializer:
            _check_initialiser(runs, bound.facts["bindings"])
        else:
            _check_operator(runs, bound.facts["bindings"])
        self._platform.dispatch(commands, runs, bound)

    def _expect(self, iid: int, name: str) -> None:
        given, wanted = ctypes.string_at(iid, 16), getattr(dml, name).iid
        if given != bytes(wanted):
            self.world.complaints.append(f"another interface than {name} was asked for")


def _check_initialiser(initialiser: FakeObject, bindings: Bindings) -> None:
    needs: Needs = initialiser.facts["needs"]
    persistent = [made.facts["needs"].persistent for made in initialiser.facts["operators"]]
    assert bindings.inputs is None, "no tensor belongs to DirectML, and inputs were bound"
    assert bindings.outputs is not None, "persistent memory was not bound"
    assert len(bindings.outputs) == len(persistent), "a number of persistent resources is wrong"
    for bound, size in zip(bindings.outputs, persistent, strict=True):
        _check_memory(bound, size, "persistent memory")
    _check_memory(bindings.temporary, needs.temporary, "temporary memory")
    assert not any(made.facts["initialised"] for made in initialiser.facts["operators"])


def _check_operator(compiled: FakeObject, bindings: Bindings) -> None:
    needs: Needs = compiled.facts["needs"]
    seen: SeenOperator = compiled.facts["seen"]
    assert compiled.facts["initialised"], "an operator was recorded before it was initialised"
    assert bindings.inputs is not None, "inputs were not bound"
    assert len(bindings.inputs) == len(seen.inputs), "the number of inputs is wrong"
    for bound, tensor in zip(bindings.inputs, seen.inputs, strict=True):
        assert (bound is None) == (tensor is None), "an input is bound that is not there, or not"
        if bound is not None and tensor is not None:
            assert bound.size >= tensor.total_bytes, "an input is too small"
            assert bound.offset % max(tensor.alignment, 16) == 0, "an offset is not as promised"
    assert bindings.outputs is not None, "the output was not bound"
    (output,) = bindings.outputs
    assert output is not None, "the output was left out"
    assert output.size >= seen.output.total_bytes, "the output is too small"
    _check_memory(bindings.temporary, needs.temporary, "temporary memory")
    _check_memory(bindings.persistent, needs.persistent, "persistent memory")
    for other in bindings.all:
        apart = (
            other is output
            or other.resource != output.resource
            or other.offset + other.size <= output.offset
            or output.offset + output.size <= other.offset
        )
        assert apart, "the output overlaps something else"


def _check_memory(bound: Bound | None, size: int, what: str) -> None:
    assert (bound is None) == (size == 0), f"{what} was bound and not needed, or the other way"
    if bound is not None:
        assert bound.size >= size, f"{what} is too small"
        assert bound.offset % 256 == 0, f"{what} does not start at a multiple of 256 bytes"
