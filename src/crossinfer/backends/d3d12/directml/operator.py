"""One operator through its life: created, compiled, initialised, and recorded again and again.

    CreateOperator           from the description, with exact shapes
    CompileOperator          for this device; it then tells what binding it takes
    prepare, once            an initialiser is dispatched, which fills the persistent memory
    record, each dispatch    descriptors of inputs, output, temporary and persistent memory are
                             written into a range of the list's heap, then RecordDispatch

DirectML has no error for a binding that is missing, too many or too small: it removes the device.
So everything is checked here before it is bound.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Protocol

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.descriptors import DescriptorPool
from crossinfer.backends.d3d12.directml.binding import BindingTable, Properties
from crossinfer.backends.d3d12.directml.constants import ExecutionFlags
from crossinfer.backends.d3d12.directml.descriptions import Description, name_of
from crossinfer.backends.d3d12.directml.interfaces import (
    IDMLCompiledOperator,
    IDMLOperator,
    IDMLOperatorInitializer,
)
from crossinfer.backends.d3d12.operators import DescriptorRange, Place
from crossinfer.core.errors import InvalidUse


class Host(Protocol):
    """What operators need of the Direct3D 12 device that they run on. Raises ComError."""

    @property
    def device(self) -> ComObject:
        """The ID3D12Device."""

    @property
    def descriptors(self) -> DescriptorPool: ...

    def make_buffer(self, size: int) -> ComObject:
        """An ID3D12Resource: a buffer in the default heap for unordered access."""

    def run(self, record: Callable[[ComObject], None]) -> None:
        """Have a list recorded, run it, and wait until it has finished."""


class DmlOperator:
    """A compiled operator. Used by one thread; the device must be idle when it is released."""

    def __init__(
        self,
        host: Host,
        device: ComObject,
        recorder: ComObject,
        description: Description,
        flags: ExecutionFlags,
    ) -> None:
        """`device` is an IDMLDevice, `recorder` an IDMLCommandRecorder. Raises ComError.

        A driver that cannot compile the operator says so here.
        """
        self.description = description
        self._host = host
        self._device = device
        self._recorder = recorder
        self._initialised = False
        self._persistent: Place | None = None
        self._in_use: tuple[object, ...] = ()
        operator = device.create("CreateOperator", IDMLOperator, ctypes.byref(description.native()))
        try:
            self._compiled = device.create("CompileOperator", IDMLCompiledOperator, operator, flags)
        finally:
            operator.release()  # a compiled operator stands for itself
        self.properties = Properties(self._compiled)

    def __repr__(self) -> str:
        return f"<{self.name} {self.description.shape}>"

    @property
    def name(self) -> str:
        return name_of(self.description)

    @property
    def descriptors(self) -> int:
        return self.properties.descriptors

    @property
    def temporary_bytes(self) -> int:
        """Memory that a dispatch needs while it runs; its contents mean nothing before or after."""
        return self.properties.temporary_bytes

    def prepare(self) -> None:
        """Initialise, if that is still to be done. Raises ComError."""
        if self._initialised:
            return
        operators = (ctypes.c_void_p * 1)(self._compiled.address)
        initialiser = self._device.create(
            "CreateOperatorInitializer", IDMLOperatorInitializer, 1, operators
        )
        properties = Properties(initialiser)
        descriptors = self._host.descriptors.lend(properties.descriptors)
        temporary = self._memory(properties.temporary_bytes)
        persistent = self._memory(self.properties.persistent_bytes)

        def record(commands: ComObject) -> None:
            descriptors.set_on(commands)
            taken = descriptors.take(properties.descriptors)
            table = BindingTable(self._device, initialiser, taken)
            # Its inputs would be tensors that DirectML owns, and there are none of those.
            table.bind_outputs([persistent])
            table.bind_temporary(temporary)
            self._recorder.RecordDispatch(commands, initialiser, table.native)
            table.release()

        # If the list never ends, they stay until the device closes.
        self._in_use = (persistent, temporary, descriptors, initialiser)
        self._host.run(record)
        self._in_use = ()
        _release(temporary)
        initialiser.release()
        self._persistent, self._initialised = persistent, True

    def record(
        self, commands: ComObject, places: Sequence[Place], descriptors: DescriptorRange
    ) -> None:
        """`places`: the inputs that are there, the output, temporary memory if it takes some.

        Raises InvalidUse for what DirectML would remove the device for, and ComError.
        """
        if not self._initialised:
            raise InvalidUse(f"{self} is recorded before it was initialised.")
        inputs, output, temporary = self._sorted(places)
        if descriptors.count != self.descriptors:
            raise InvalidUse(f"{self} takes {self.descriptors} descriptors.")
        table = BindingTable(self._device, self._compiled, descriptors)
        table.bind_inputs(inputs)
        table.bind_outputs([output])
        table.bind_temporary(temporary)
        table.bind_persistent(self._persistent)
        self._recorder.RecordDispatch(commands, self._compiled, table.native)
        table.release()  # the descriptors are in the heap

    def release(self) -> None:
        """Give everything back. Nothing that was recorded may be in flight."""
        self._compiled.release()
        _release(self._persistent)

    def _memory(self, size: int) -> Place | None:
        return Place(self._host.make_buffer(size), 0, size) if size else None

    def _sorted(self, places: Sequence[Place]) -> tuple[list[Place | None], Place, Place | None]:
        """(inputs with None for those left out, output, temporary memory)."""
        description = self.description
        tensors = [*(t for t in description.inputs if t is not None), description.output]
        sizes = [tensor.size_in_bytes for tensor in tensors]
        if self.temporary_bytes:
            sizes.append(self.temporary_bytes)
        given = [place.size for place in places]
        if len(given) != len(sizes) or any(a < b for a, b in zip(given, sizes, strict=True)):
            raise InvalidUse(f"{self} takes views of {sizes} bytes at least, and got {given}.")
        exact = iter(
            Place(place.resource, place.offset, size)
            for place, size in zip(places, sizes, strict=True)
        )
        inputs = [None if tensor is None else next(exact) for tensor in description.inputs]
        return inputs, next(exact), next(exact, None)


def _release(memory: Place | None) -> None:
    if memory is not None:
        memory.resource.release()
