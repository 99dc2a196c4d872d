"""The debug layer and breadcrumbs (DRED): switched on before a device is made, read afterwards."""

from __future__ import annotations

import ctypes
import sys

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import DRED_FORCED_ON
from crossinfer.backends.d3d12.interfaces import (
    ID3D12Debug,
    ID3D12DeviceRemovedExtendedDataSettings,
    ID3D12InfoQueue,
)
from crossinfer.backends.d3d12.libraries import Direct3D
from crossinfer.backends.d3d12.structures import D3D12_MESSAGE
from crossinfer.core.errors import KernelUnsupported

_WORST_SEVERITY_OF_NO_INTEREST = 3
"""D3D12_MESSAGE_SEVERITY: corruption, error and warning come before INFO."""


def enable_debug_layer(api: Direct3D) -> None:
    """Has every device that is made from now on watched. Raises KernelUnsupported."""
    debug = api.debug_interface(ID3D12Debug)
    if debug is None:
        raise KernelUnsupported(
            "The debug layer of Direct3D 12 is not installed here: on Windows add the optional "
            "feature Graphics Tools, or set CROSSINFER_VALIDATION to 0."
        )
    debug.EnableDebugLayer()
    debug.release()


def enable_breadcrumbs(api: Direct3D) -> None:
    """Has the system keep what a GPU had got to, and the memory that it faulted on.

    Raises KernelUnsupported.
    """
    settings = api.debug_interface(ID3D12DeviceRemovedExtendedDataSettings)
    if settings is None:
        raise KernelUnsupported(
            "This system keeps no breadcrumbs for Direct3D 12 (Windows 10 1903 and later do); "
            "set CROSSINFER_D3D12_DRED to 0."
        )
    settings.SetAutoBreadcrumbsEnablement(DRED_FORCED_ON)
    settings.SetPageFaultEnablement(DRED_FORCED_ON)
    settings.release()


class Messages:
    """What the debug layer complains about on one device; each message goes to stderr too."""

    def __init__(self, device: ComObject) -> None:
        self._queue = device.query(ID3D12InfoQueue)

    def take(self) -> list[str]:
        """The messages since the last time. Raises ComError."""
        if self._queue is None:
            return []
        found = [self._message(n) for n in range(self._queue.GetNumStoredMessages())]
        self._queue.ClearStoredMessages()
        complaints = [text for text in found if text]
        for text in complaints:
            print(f"Direct3D 12: {text}", file=sys.stderr)
        return complaints

    def _message(self, number: int) -> str:
        """Its text; empty for one that is no complaint."""
        assert self._queue is not None
        size = ctypes.c_size_t()
        try:
            self._queue.GetMessage(number, None, ctypes.byref(size))
            memory = ctypes.create_string_buffer(size.value)
            self._queue.GetMessage(number, memory, ctypes.byref(size))
        except ComError:
            return ""  # another thread took it
        message = D3D12_MESSAGE.from_buffer(memory)
        if message.Severity >= _WORST_SEVERITY_OF_NO_INTEREST or not message.pDescription:
            return ""
        return ctypes.string_at(message.pDescription).decode(errors="replace")
