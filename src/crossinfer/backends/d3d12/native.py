"""The device, its queue and its fence: what every other part submits to and waits for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from crossinfer.backends.d3d12.com import ComError, ComObject, References
from crossinfer.backends.d3d12.constants import REMOVED, ListType
from crossinfer.backends.d3d12.interfaces import (
    ID3D12CommandQueue,
    ID3D12Device,
    ID3D12Fence,
)
from crossinfer.backends.d3d12.libraries import Direct3D
from crossinfer.backends.d3d12.structures import D3D12_COMMAND_QUEUE_DESC
from crossinfer.backends.d3d12.waiting import wait_until


class NativeDevice:
    """References of our own on a device and a queue, and a fence that counts our submissions.

    Everything that is made through `device` is released by `close`. Raises ComError.
    """

    def __init__(self, api: Direct3D, device: ComObject, queue: ComObject) -> None:
        """Takes over both references; they and what is made of them share `device.references`."""
        self.api = api
        self.device = device
        self.queue = queue
        self.references = device.references
        description = D3D12_COMMAND_QUEUE_DESC()
        queue.GetDesc(ctypes.byref(description))
        self.list_type = ListType(description.Type)
        self.queue_lock = threading.Lock()
        self._submitted = 0
        try:
            self._fence = device.create("CreateFence", ID3D12Fence, 0, 0)
        except ComError:
            self.close()
            raise

    @classmethod
    def create(cls, api: Direct3D, device: ComObject) -> NativeDevice:
        """With a compute queue of its own on a device that others may use too."""
        ours = ComObject.adopt(device.address, ID3D12Device, device.abi)
        description = D3D12_COMMAND_QUEUE_DESC(Type=ListType.COMPUTE)
        try:
            queue = ours.create("CreateCommandQueue", ID3D12CommandQueue, ctypes.byref(description))
        except ComError:
            ours.release()
            raise
        return cls(api, ours, queue)

    @classmethod
    def adopt(cls, api: Direct3D, device: int, queue: int) -> NativeDevice:
        """Over a device and a queue of a host, which keeps them; lists are of the queue's type."""
        references = References()
        return cls(
            api,
            ComObject.adopt(device, ID3D12Device, api.abi, references),
            ComObject.adopt(queue, ID3D12CommandQueue, api.abi, references),
        )

    def run(self, lists: Sequence[ComObject]) -> int:
        """Execute closed lists one after the other; returns the fence's value after them.

        Each by a call of its own: buffers decay to COMMON between calls, not between the lists of
        one. Raises ComError.
        """
        with self.queue_lock:
            for commands in lists:
                self.queue.ExecuteCommandLists(1, ctypes.byref(ctypes.c_void_p(commands.address)))
            self._submitted += 1
            self.queue.Signal(self._fence, self._submitted)
            return self._submitted

    @property
    def submitted(self) -> int:
        """The fence's value when everything so far has finished."""
        return self._submitted

    def is_done(self, value: int) -> bool:
        """Whether the fence has reached `value`. Raises ComError if the device was removed."""
        completed: int = self._fence.GetCompletedValue()
        if completed == REMOVED:
            raise ComError("ID3D12Fence.GetCompletedValue", self.removed_reason())
        return completed >= value

    def wait(self, value: int, timeout_s: float) -> bool:
        """Whether the fence reached `value` within the time. Raises ComError."""
        return wait_until(self._fence, lambda: self.is_done(value), value, timeout_s)

    def removed_reason(self) -> int:
        """GetDeviceRemovedReason: a failure's code, or 0 while the device is there."""
        try:
            self.device.GetDeviceRemovedReason()
        except ComError as error:
            return error.code
        return 0

    def becomes_idle(self, timeout_s: float) -> bool:
        """Whether nothing of ours runs any more, within the time."""
        try:
            return self.wait(self._submitted, timeout_s)
        except ComError:
            return True  # removed: nothing runs on it

    def close(self) -> None:
        """Release everything. Nothing of it is in use any more."""
        self.references.release()

    def abandon(self) -> None:
        """Leave everything as it is: the GPU may still use it, or it is another process's."""
        self.references.abandon()
