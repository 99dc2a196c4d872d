"""Buffers: each a resource of its own, since a buffer is in one state at a time as a whole."""

from __future__ import annotations

import ctypes
import dataclasses

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import (
    ALLOW_UNORDERED_ACCESS,
    LAYOUT_ROW_MAJOR,
    RESOURCE_BUFFER,
    Heap,
    State,
)
from crossinfer.backends.d3d12.hresult import HResult
from crossinfer.backends.d3d12.interfaces import ID3D12Resource
from crossinfer.backends.d3d12.structures import (
    D3D12_HEAP_PROPERTIES,
    D3D12_RANGE,
    D3D12_RESOURCE_DESC,
)
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import Buffer, View

_ALIGNMENT = 256
_MOST_BYTES = 1 << 44
"""No GPU's addresses reach further; some drivers crash where they should refuse."""
# For upload and readback these are for ever; other buffers start in COMMON whatever is asked for.
_FIRST_STATES = {
    Heap.DEFAULT: State.COMMON,
    Heap.UPLOAD: State.GENERIC_READ,
    Heap.READBACK: State.COPY_DEST,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Allocation:
    """A committed buffer. `address` is the GPU's, `mapped` the host's (0 if it cannot see it)."""

    resource: ComObject
    size: int
    address: int
    mapped: int = 0


def create_buffer(device: ComObject, heap: Heap, size: int) -> Allocation:
    """New memory. What the host can see stays mapped. Raises ComError."""
    size = align_up(size, _ALIGNMENT)
    if size > _MOST_BYTES:
        raise ComError("ID3D12Device.CreateCommittedResource", HResult.E_OUTOFMEMORY)
    properties = D3D12_HEAP_PROPERTIES(Type=heap, CreationNodeMask=1, VisibleNodeMask=1)
    description = D3D12_RESOURCE_DESC(
        Dimension=RESOURCE_BUFFER,
        Width=size,
        Height=1,
        DepthOrArraySize=1,
        MipLevels=1,
        SampleCount=1,
        Layout=LAYOUT_ROW_MAJOR,
        Flags=ALLOW_UNORDERED_ACCESS if heap is Heap.DEFAULT else 0,
    )
    resource = device.create(
        "CreateCommittedResource",
        ID3D12Resource,
        ctypes.byref(properties),
        0,
        ctypes.byref(description),
        _FIRST_STATES[heap],
        None,
    )
    try:
        mapped = 0 if heap is Heap.DEFAULT else _map(resource, heap, size)
    except ComError:
        resource.release()
        raise
    return Allocation(resource, size, resource.GetGPUVirtualAddress(), mapped)


def _map(resource: ComObject, heap: Heap, size: int) -> int:
    read = D3D12_RANGE(0, size if heap is Heap.READBACK else 0)
    address = ctypes.c_void_p()
    resource.Map(0, ctypes.byref(read), ctypes.byref(address))
    assert address.value is not None
    return address.value


def allocation_of(buffer: Buffer) -> Allocation:
    """The memory behind a buffer of this backend."""
    assert isinstance(buffer.handle, Allocation)
    return buffer.handle


def address_of(view: View) -> int:
    """The GPU's address of a view's first byte."""
    return allocation_of(view.buffer).address + view.offset
