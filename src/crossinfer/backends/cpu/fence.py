"""Fences over completion signals: nothing in Python runs when a submission ends."""

from __future__ import annotations

from crossinfer.backends.cpu.queue import NativeQueue
from crossinfer.backends.cpu.signal_pool import OwnedSignals
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence


class CpuFence(Fence):
    """Done when its signal is, or when the device is lost."""

    def __init__(self, device: Device, queue: NativeQueue, owned: OwnedSignals) -> None:
        super().__init__(device)
        self._queue = queue
        self._owned = owned

    @property
    def done(self) -> bool:
        # The signal belongs to the recording, which counts it up again only when this was true:
        # so the answer is kept as soon as it is.
        if not self._settled and self._owned.done():
            self._queue.see_writes()
            self.signal()
        return self._settled

    def wait(self, timeout_s: float | None = None) -> None:
        if not self._settled and self._device.lost is None:
            deadline_s = self._device.deadline_s if timeout_s is None else timeout_s
            if self._queue.wait(self._owned.signals, 0, deadline_s, lambda: self._settled):
                self.signal()
            else:
                reason = self._queue.error or f"no answer within {deadline_s:g} seconds"
                self._device.lose(reason)
        super().wait(0)
