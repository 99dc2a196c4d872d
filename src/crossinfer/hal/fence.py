"""Fences: when a submission has finished."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from crossinfer.core.errors import DeviceError

if TYPE_CHECKING:
    from crossinfer.hal.device import Device


class Fence:
    """Signalled once, when the submission has finished or its device is lost."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._settled = False
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        """Made for who waits here, since it is slow to make: most backends wait by themselves."""
        self._error: DeviceError | None = None

    @property
    def done(self) -> bool:
        """The submission is not in flight any more."""
        return self._settled

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the submission; `timeout_s` defaults to the device's deadline.

        A device that has not answered by then is lost: it is in an unknown state, and waiting
        longer would hang the caller. Raises DeviceLost, or the error that the backend signalled.
        """
        if not self._settled:
            deadline = self._device.deadline_s if timeout_s is None else timeout_s
            if not self._waiters_event().wait(deadline):
                self._device.lose(f"no answer within {deadline:g} seconds")
        if self._error is not None:
            raise self._error

    def wait_through(self, timeout_s: float | None = None) -> None:
        """As `wait`, for who then frees what the submission uses, whatever happens.

        An interrupt is raised when the submission has ended; another one loses the device.
        """
        try:
            self.wait(timeout_s)
        except Exception:  # the submission has ended, or its device is lost
            raise
        except BaseException:
            try:
                with contextlib.suppress(DeviceError):
                    self.wait(timeout_s)
            except BaseException as error:
                self._device.lose(f"a wait was cut short ({type(error).__name__})")
            raise

    def signal(self, error: DeviceError | None = None) -> None:
        """Called by the device when the submission ends; later calls change nothing."""
        with self._lock:  # the end of the work and the loss of the device may come at once
            if not self._settled:
                self._error = error
                self._settled = True
                if self._event is not None:
                    self._event.set()

    def _waiters_event(self) -> threading.Event:
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self._settled:
                    self._event.set()
            return self._event
