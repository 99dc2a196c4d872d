"""Bringing many tensors to a device, which may still be at some while the next are prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Buffer, Role
from crossinfer.hal.hooks import Data

if TYPE_CHECKING:
    from crossinfer.hal.device import Device


class LoadingStoppedError(Exception):
    """What `Loader.stop` has the loading thread's calls raise."""


class Loader:
    """Made by `Device.loader`; used by one thread, but for `stop`, as a context manager.

    This one, which most devices have, brings one tensor after the other.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stopped = False

    def add(
        self,
        data: Data,
        shape: Sequence[int],
        dtype: StorageType,
        role: Role,
        label: str,
        check: Callable[[], None],
    ) -> Buffer:
        """A buffer that holds the tensor once the loader is left without an error.

        `check` raises if the tensor's numbers are of no use. A device that looks at them itself
        calls it only for those that it found to be NaN or infinite, perhaps later. `data` stays as
        it is until then. Raises what `check` does, OutOfDeviceMemory, DeviceLost, InvalidUse, and
        LoadingStoppedError.
        """
        self.check_going()
        check()
        return self._device.upload(data, shape, dtype, role, label)

    def finish(self) -> None:
        """Wait until all tensors are there. Raises as `add`."""

    def abandon(self) -> None:
        """After an error: wait until the device touches none of the data and buffers any more."""

    def stop(self) -> None:
        """From any thread: begin nothing more, so that the loading thread comes back soon."""
        self._stopped = True

    def check_going(self) -> None:
        """Raises LoadingStoppedError after `stop`."""
        if self._stopped:
            raise LoadingStoppedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.abandon()
