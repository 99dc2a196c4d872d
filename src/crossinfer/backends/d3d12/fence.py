"""Fences over values of the queue's one ID3D12Fence: nothing in Python runs when work ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossinfer.backends.d3d12.com import ComError
from crossinfer.hal.fence import Fence

if TYPE_CHECKING:
    from crossinfer.backends.d3d12.device import D3D12Device


class D3D12Fence(Fence):
    """Done when the queue's fence has reached `value`, or when the device is lost."""

    def __init__(self, device: D3D12Device) -> None:
        super().__init__(device)
        self._d3d12_device = device
        self.value: int | None = None
        """None until the submission has been handed over."""

    @property
    def done(self) -> bool:
        if self._is_open() and self.value is not None:
            try:
                if self._d3d12_device.native.is_done(self.value):
                    self.signal()
            except ComError as error:
                self._d3d12_device.fail(error)
        return self._settled

    def wait(self, timeout_s: float | None = None) -> None:
        if self._is_open() and self.value is not None:
            deadline_s = self._device.deadline_s if timeout_s is None else timeout_s
            try:
                if self._d3d12_device.native.wait(self.value, deadline_s):
                    self.signal()
                else:
                    self._device.lose(f"no answer within {deadline_s:g} seconds")
            except ComError as error:
                self._d3d12_device.fail(error)
        super().wait(0)

    def _is_open(self) -> bool:
        """Whether Direct3D is to be asked. After a fork, the device is lost and must not be."""
        device = self._d3d12_device
        return not (self._settled or device.is_failing or device.lost is not None)
