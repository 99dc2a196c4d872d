"""The ID3D12Device of an adapter, shared by all of this process's devices on it.

Windows gives out one device for each adapter anyway, so kernels are compiled once, and a device
that was removed is made anew only when the last reference to it has gone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import Feature
from crossinfer.backends.d3d12.libraries import Direct3D
from crossinfer.backends.d3d12.pipelines import Pipelines


class SharedDevice:
    """A device with its pipelines, and how many use it."""

    def __init__(self, api: Direct3D, device: ComObject, identity: str) -> None:
        """Takes over the reference; `identity` as in `Pipelines`. The caller is its user."""
        self.api = api
        self.device = device
        self.pipelines = Pipelines(api, device, identity)
        self.users = 1
        self.is_stale = False
        """It was removed or hangs: the next one who wants a device tries to make another."""

    def takes_model(self, model: int) -> bool:
        """Whether the driver takes shaders of this model or a later one."""
        found = ctypes.c_uint32(model)
        try:
            self.device.CheckFeatureSupport(Feature.SHADER_MODEL, ctypes.byref(found), 4)
        except ComError:  # the system does not know the model
            return False
        return found.value >= model

    def give_up(self) -> None:
        """The queue of a user hangs: what it may use stays for ever; others get a new device."""
        self.is_stale = True
        self.device.references.pin()

    def release(self) -> None:
        """One user less; the last one ends it."""
        with _lock:
            self.users -= 1
            if self.users > 0:
                return
            for key in [key for key, shared in _shared.items() if shared is self]:
                del _shared[key]
            self.device.references.release()


_lock = threading.RLock()
_shared: dict[tuple[int, str], SharedDevice] = {}


def shared_device(adapter: str, make: Callable[[], SharedDevice]) -> SharedDevice:
    """The device of an adapter, made if there is none; the caller becomes a user of it."""
    # A child of a fork must not use its parent's, so each process has its own.
    key = (os.getpid(), adapter)
    with _lock:
        found = _shared.get(key)
        if found is None or found.is_stale:
            _shared[key] = made = make()
            return made
        found.users += 1
        return found
