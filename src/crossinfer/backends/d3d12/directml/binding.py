"""Binding tables: which memory a dispatchable sees, written as descriptors into a heap's range."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.directml import structures as dml
from crossinfer.backends.d3d12.directml.constants import BindingType
from crossinfer.backends.d3d12.directml.interfaces import IDMLBindingTable
from crossinfer.backends.d3d12.operators import DescriptorRange, Place


class Properties:
    """What a dispatchable wants bound: a number of descriptors, and memory in bytes."""

    def __init__(self, dispatchable: ComObject) -> None:
        """`dispatchable` is a compiled operator or an initialiser."""
        found = dml.DML_BINDING_PROPERTIES()
        call = dispatchable.GetBindingProperties
        if dispatchable.abi is Abi.SYSV:
            # C++ returns a large structure through a first argument, which goes before the object.
            call.func(ctypes.byref(found), dispatchable)
        else:
            call(ctypes.byref(found))
        self.descriptors = int(found.RequiredDescriptorCount)
        self.temporary_bytes = int(found.TemporaryResourceSize)
        self.persistent_bytes = int(found.PersistentResourceSize)


class BindingTable:
    """The bindings of one dispatch. It may go once the dispatch is recorded; the heap may not."""

    def __init__(
        self, device: ComObject, dispatchable: ComObject, descriptors: DescriptorRange
    ) -> None:
        """`device` is an IDMLDevice. Raises ComError."""
        description = dml.DML_BINDING_TABLE_DESC(
            Dispatchable=dispatchable.address,
            CPUDescriptorHandle=descriptors.cpu,
            GPUDescriptorHandle=descriptors.gpu,
            SizeInDescriptors=descriptors.count,
        )
        self.native = device.create(
            "CreateBindingTable", IDMLBindingTable, ctypes.byref(description)
        )

    def bind_inputs(self, places: Sequence[Place | None]) -> None:
        """One for each input of the description; None binds nothing there."""
        self.native.BindInputs(len(places), _bindings(places))

    def bind_outputs(self, places: Sequence[Place | None]) -> None:
        self.native.BindOutputs(len(places), _bindings(places))

    def bind_temporary(self, place: Place | None) -> None:
        if place is not None:
            self.native.BindTemporaryResource(_bindings([place]))

    def bind_persistent(self, place: Place | None) -> None:
        if place is not None:
            self.native.BindPersistentResource(_bindings([place]))

    def release(self) -> None:
        self.native.release()


def _bindings(places: Sequence[Place | None]) -> Any:
    return dml.array_of([_binding(place) for place in places])


def _binding(place: Place | None) -> Any:
    if place is None:
        return dml.DML_BINDING_DESC(Type=BindingType.NONE)
    buffer = dml.DML_BUFFER_BINDING(
        Buffer=place.resource.address, Offset=place.offset, SizeInBytes=place.size
    )
    return dml.DML_BINDING_DESC(Type=BindingType.BUFFER, Desc=buffer)
