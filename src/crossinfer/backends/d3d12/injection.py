"""Devices that a host made and keeps: we compute on their queue, and end nothing of theirs.

References are added to the device and the queue and given back by `close`. Command lists,
allocators, heaps, buffers and the one fence that is signalled and waited for are our own. No
resource of the host is touched, so no state of one changes; a queue keeps no state between lists.
"""

from __future__ import annotations

import ctypes

from crossinfer.backends.d3d12.adapters import adapter_of
from crossinfer.backends.d3d12.com import ComError, ComObject, IUnknown, References
from crossinfer.backends.d3d12.constants import ListType
from crossinfer.backends.d3d12.device import MOST_VIEW_BYTES, D3D12Device
from crossinfer.backends.d3d12.errors import device_error
from crossinfer.backends.d3d12.interfaces import ID3D12CommandQueue, ID3D12Device
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.opening import check_shader_model, describe
from crossinfer.backends.d3d12.sharing import SharedDevice
from crossinfer.backends.d3d12.structures import D3D12_COMMAND_QUEUE_DESC
from crossinfer.core.errors import InvalidUse, KernelUnsupported


def from_d3d12(device: int, queue: int, *, deadline_s: float = 60.0) -> D3D12Device:
    """A device over a host's ID3D12Device and one of its queues, direct or compute (addresses).

    The host may go on submitting to the queue at any time, also while a call runs: queues of
    Direct3D 12 are thread-safe, and what is submitted runs in turn. Raises InvalidUse,
    KernelUnsupported, OutOfDeviceMemory.
    """
    api = direct3d()
    if api is None:
        raise KernelUnsupported("There is no Direct3D 12 library here.")
    if not device or not queue:
        raise InvalidUse(
            "The Direct3D 12 device or its queue is null; give those of a device that is open."
        )
    held = References()
    try:
        ours = ComObject.adopt(device, ID3D12Device, api.abi, held)
        _check_queue(ours, ComObject.adopt(queue, ID3D12CommandQueue, api.abi, held))
        return _open(api, ours, queue, deadline_s)
    except ComError as error:
        raise device_error(error, "d3d12", "use the host's device", in_use=0) from None
    finally:
        held.release()


def _open(api: Direct3D, device: ComObject, queue: int, deadline_s: float) -> D3D12Device:
    """Raises ComError and the HAL's errors."""
    adapter = adapter_of(api, device)
    if adapter is None:
        raise KernelUnsupported("The adapter of the host's device is not listed by this system.")
    info = describe(adapter, 0)
    kept = ComObject.adopt(device.address, ID3D12Device, api.abi)
    shared = SharedDevice(api, kept, adapter.driver)
    try:
        check_shader_model(shared, info)
        native = NativeDevice.adopt(api, device.address, queue)
    except BaseException:
        shared.release()
        raise
    most = adapter.most_view_bytes or MOST_VIEW_BYTES
    return D3D12Device(native, info, shared, max_view_bytes=most, deadline_s=deadline_s)


def _check_queue(device: ComObject, queue: ComObject) -> None:
    """Raises InvalidUse unless the queue is one that we can use on the device."""
    identity, child = device.query(ID3D12Device), queue.query(ID3D12CommandQueue)
    if identity is None or child is None:
        raise InvalidUse(
            "These are not an ID3D12Device and an ID3D12CommandQueue, in that order; give their "
            "addresses."
        )
    description = D3D12_COMMAND_QUEUE_DESC()
    queue.GetDesc(ctypes.byref(description))
    if description.Type not in list(ListType):
        raise InvalidUse("The queue can only copy; give a direct or a compute queue.")
    if _identity(queue.create("GetDevice", ID3D12Device)) != _identity(device):
        raise InvalidUse("The queue belongs to another device; give one of the same device.")


def _identity(thing: ComObject) -> int:
    """What tells whether two references are of one object."""
    return thing.create("QueryInterface", IUnknown).address
