"""Why a device was lost, in the words of Direct3D: the removed reason, breadcrumbs, page faults."""

from __future__ import annotations

import ctypes

from crossinfer.backends.d3d12.com import ComError
from crossinfer.backends.d3d12.hresult import hresult_name
from crossinfer.backends.d3d12.interfaces import ID3D12DeviceRemovedExtendedData
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.structures import (
    D3D12_AUTO_BREADCRUMB_NODE,
    D3D12_DRED_ALLOCATION_NODE,
    D3D12_DRED_PAGE_FAULT_OUTPUT,
)

_MOST_ENTRIES = 8
"""Of each kind, in the sentence."""
# D3D12_AUTO_BREADCRUMB_OP, those that this backend and DirectML record.
_OPERATIONS = {
    6: "DISPATCH",
    7: "COPYBUFFERREGION",
    13: "CLEARUNORDEREDACCESSVIEW",
    15: "RESOURCEBARRIER",
    18: "RESOLVEQUERYDATA",
    35: "INITIALIZEMETACOMMAND",
    36: "EXECUTEMETACOMMAND",
}


def loss_reason(native: NativeDevice, error: ComError) -> str:
    """The reason for `DeviceLost`: the call that told, GetDeviceRemovedReason, and what DRED kept
    (if the setting d3d12_dred is on).
    """
    parts = [str(error)]
    removed = native.removed_reason()
    if removed and removed != error.code:
        parts.append(f"GetDeviceRemovedReason: {hresult_name(removed)}")
    return "; ".join(parts + _extended_data(native))


def _extended_data(native: NativeDevice) -> list[str]:
    data = native.device.query(ID3D12DeviceRemovedExtendedData)
    if data is None:
        return []
    parts = []
    head = ctypes.c_void_p()
    try:
        data.GetAutoBreadcrumbsOutput(ctypes.byref(head))
        parts += _unfinished_lists(head.value)
    except ComError:
        pass  # it was not kept
    fault = D3D12_DRED_PAGE_FAULT_OUTPUT()
    try:
        data.GetPageFaultAllocationOutput(ctypes.byref(fault))
        parts += _page_fault(fault)
    except ComError:
        pass
    data.release()
    return parts


def _unfinished_lists(address: int | None) -> list[str]:
    """Lists that had started and not ended, with the operation that they stood at."""
    parts: list[str] = []
    while address is not None and len(parts) < _MOST_ENTRIES:
        node = D3D12_AUTO_BREADCRUMB_NODE.from_address(address)
        last, count = node.pLastBreadcrumbValue, node.BreadcrumbCount
        ended = ctypes.c_uint32.from_address(last).value if last else 0
        if node.pCommandHistory and ended < count:
            history = (ctypes.c_uint32 * count).from_address(node.pCommandHistory)
            operation = _OPERATIONS.get(history[ended], f"operation {history[ended]}")
            parts.append(f"a list stood at command {ended} of {count}, {operation}")
        address = node.pNext
    return parts


def _page_fault(fault: D3D12_DRED_PAGE_FAULT_OUTPUT) -> list[str]:
    if not fault.PageFaultVA:
        return []
    parts = [f"page fault at {fault.PageFaultVA:#x}"]
    for what, head in (
        ("in", fault.pHeadExistingAllocationNode),
        ("freed before:", fault.pHeadRecentFreedAllocationNode),
    ):
        address, found = head, 0
        while address is not None and found < _MOST_ENTRIES:
            node = D3D12_DRED_ALLOCATION_NODE.from_address(address)
            parts.append(f"{what} {_name(node)}")
            address, found = node.pNext, found + 1
    return parts


def _name(node: D3D12_DRED_ALLOCATION_NODE) -> str:
    if node.ObjectNameA:
        return ctypes.string_at(node.ObjectNameA).decode(errors="replace")
    return f"an allocation of type {node.AllocationType}"
