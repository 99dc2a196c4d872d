"""The one-shot convenience: record a few commands, run them, wait."""

from __future__ import annotations

from crossinfer.hal.buffer import View
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Recorder
from crossinfer.hal.timer import Timer


class Executor:
    """A command list with its fence. Records like a Recorder; raises what the device raises."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._recorder: Recorder = device.recorder()

    def dispatch(self, dispatch: Dispatch) -> None:
        self._recorder.dispatch(dispatch)

    def copy_region(self, source: View, destination: View) -> None:
        self._recorder.copy_region(source, destination)

    def timestamp(self, timer: Timer, index: int) -> None:
        self._recorder.timestamp(timer, index)

    def submit_and_wait(self, timeout_s: float | None = None) -> None:
        """Run what was recorded and wait for it; the executor is then empty again."""
        try:
            recording = self._recorder.finish()
        finally:
            self.reset()
        self._device.submit(recording).wait(timeout_s)

    def reset(self) -> None:
        """Forget what was recorded and not submitted."""
        self._recorder = self._device.recorder()
