"""Weights on their way to a device while the thread that wants them does something else."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from types import TracebackType

from crossinfer.core.errors import OutOfDeviceMemory, RequestError
from crossinfer.core.progress import Progress
from crossinfer.graph.graph import Tensor
from crossinfer.hal.buffer import Buffer, Role
from crossinfer.hal.device import Device
from crossinfer.hal.loading import Loader, LoadingStoppedError
from crossinfer.models.model import Model
from crossinfer.plan.placement import packed_bytes

_TELL_S = 0.1
"""Progress is told so often."""


class BackgroundLoad:
    """Constants that a thread of its own gives to one device's loader, from the moment it is made.

    The thread waits for the device nearly all the time. Either `take` or `cancel` ends the load.
    """

    def __init__(
        self, model: Model, device: Device, constants: Sequence[Tensor], progress: Progress
    ) -> None:
        """`progress` counts bytes; it is told here and by the thread that waits.

        Raises DeviceError.
        """
        self.names = frozenset(tensor.name for tensor in constants)
        self._total = sum(stored_bytes(tensor) for tensor in constants)
        self._done = 0
        self._progress = progress
        self._telling = threading.Lock()
        self._model = model
        self._device = device
        # What the device packs itself comes first, so that it is busy while the host does the rest.
        self._constants = sorted(constants, key=lambda tensor: tensor.type.role is not Role.WEIGHT)
        self._buffers: dict[str, Buffer] = {}
        self._error: BaseException | None = None
        self._where: TracebackType | None = None
        """Of the error."""
        self._loader = device.loader()
        self._ended = threading.Event()
        self._tell()
        self._thread = threading.Thread(
            target=self._work,
            name="crossinfer-loading",
            daemon=True,  # an exit ends the device's queue, which would never answer the thread
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OutOfDeviceMemory(
                f"The thread that brings weights to device {device.info.name} cannot be started: "
                f"{error}."
            ) from error

    @property
    def size_in_bytes(self) -> int:
        """What the constants take on the device, those that are still on their way included."""
        return sum(packed_bytes(tensor, self._device) for tensor in self._constants)

    def wait(self) -> None:
        """Wait until everything is there; from any thread. Raises FormatError, DeviceError, and
        RequestError after `stop`, or in a process that was forked meanwhile.
        """
        while not self._ended.wait(_TELL_S):
            if not self._thread.is_alive() and not self._ended.is_set():
                raise RequestError(
                    "Weights are not brought to this process, which was forked while they were "
                    "loaded for the one that made the LLM; make a new LLM here."
                )
            self._tell()
        if isinstance(self._error, LoadingStoppedError):
            raise RequestError("The model was closed while its weights were being loaded.")
        if self._error is not None:
            raise self._error.with_traceback(self._where)  # or it would grow each time
        self._tell()

    def take(self) -> dict[str, Buffer]:
        """The buffers by the constants' names, once everything is there.

        After any error nothing is left on the device. Raises as `wait`.
        """
        try:
            self.wait()
        except BaseException:
            self.cancel()
            raise
        return self._buffers

    def stop(self) -> None:
        """Begin nothing more; from any thread."""
        self._loader.stop()

    def cancel(self) -> None:
        """Stop, and free what was loaded. Takes as long as what is under way."""
        self.stop()
        try:
            self._ended.wait()
        except BaseException as error:
            # The device's workers may be at the buffers; only its loss ends that any sooner.
            self._device.lose(f"loading was cut short ({type(error).__name__})")
            self._ended.wait()
            raise
        finally:
            for buffer in self._buffers.values():
                buffer.free()
            self._buffers.clear()

    def _tell(self) -> None:
        """Tell progress, unless another thread is at it: its number might then come after ours.

        Whoever tells comes round again until the end is told.
        """
        if self._telling.acquire(blocking=False):
            try:
                self._progress("Loading weights", self._done, self._total)
            finally:
                self._telling.release()

    def _work(self) -> None:
        try:
            with self._loader as loader:
                for tensor in self._constants:
                    self._buffers[tensor.name] = load(loader, self._model, tensor)
                    self._done += stored_bytes(tensor)
        except BaseException as error:  # whatever it is, it must reach the thread that waits
            self._error, self._where = error, error.__traceback__
        finally:
            self._ended.set()


def load(loader: Loader, model: Model, tensor: Tensor) -> Buffer:
    """Give a constant to `loader`. Raises FormatError, DeviceError."""
    data, kind = model.constant(tensor), tensor.type
    check = functools.partial(model.check_finite, tensor, data)
    return loader.add(data, kind.shape, kind.storage, kind.role, tensor.name, check)


def stored_bytes(tensor: Tensor) -> int:
    """Bytes of a constant in its file."""
    return tensor.type.storage.bytes_for(tensor.type.shape)
