"""A driver that removes the device when one operator runs, as the API shows it.

A list that holds the operator at the shape never finishes: the queue's fence jumps to its largest
value, and GetDeviceRemovedReason says DXGI_ERROR_DEVICE_REMOVED, until the device is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.backends.d3d12.directml.computing import ComputingDirectML
from tests.backends.d3d12.directml.fake_descriptions import SeenOperator

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.commands import CommandList, CommandMemory
from crossinfer.backends.d3d12.constants import REMOVED
from crossinfer.backends.d3d12.hresult import HResult
from crossinfer.backends.d3d12.native import NativeDevice


class _RemovedFence:
    """What is left of a fence."""

    def GetCompletedValue(self) -> int:  # noqa: N802 - the API's name
        return REMOVED


class RemovingDriver:
    """Removes devices on which a GEMM of this shape (M, K, N) runs; `removals` counts them."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        directml: ComputingDirectML,
        shape: tuple[int, int, int],
    ) -> None:
        self.removals = 0
        begin, run = CommandMemory.begin, NativeDevice.run
        reason = NativeDevice.removed_reason

        def begin_anew(memory: CommandMemory) -> CommandList:
            made = begin(memory)
            # What was recorded into it before has gone.
            directml.dispatched[:] = [
                (0 if commands == made.list.address else commands, seen)
                for commands, seen in directml.dispatched
            ]
            return made

        def run_or_remove(native: NativeDevice, lists: Sequence[ComObject]) -> int:
            addresses = {commands.address for commands in lists}
            is_doomed = any(
                commands in addresses and gemm_shape(seen) == shape
                for commands, seen in directml.dispatched
            )
            if not is_doomed or is_removed(native):
                return run(native, lists)
            self.removals += 1
            fence: Any = _RemovedFence()
            native._fence = fence
            return native.submitted + 1

        def removed_reason(native: NativeDevice) -> int:
            return HResult.DXGI_ERROR_DEVICE_REMOVED if is_removed(native) else reason(native)

        monkeypatch.setattr(CommandMemory, "begin", begin_anew)
        monkeypatch.setattr(NativeDevice, "run", run_or_remove)
        monkeypatch.setattr(NativeDevice, "removed_reason", removed_reason)


def is_removed(native: NativeDevice) -> bool:
    fence: Any = native._fence
    return isinstance(fence, _RemovedFence)


def gemm_shape(seen: SeenOperator) -> tuple[int, int, int] | None:
    """M, K, N of a GEMM."""
    if len(seen.inputs) != 3:
        return None
    a = seen.inputs[0]
    assert a is not None
    m, n = seen.output.sizes[2:]
    return m, a.sizes[3], n
