"""What stays on the devices from step to step: weights, tables, KV caches, streamed layers."""

from __future__ import annotations

import contextlib

from crossinfer.core.errors import FormatError
from crossinfer.core.progress import Progress
from crossinfer.engine.background_load import BackgroundLoad, load, stored_bytes
from crossinfer.engine.layer_stream import LayerStream
from crossinfer.graph.graph import Graph, Tensor
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.models.model import Model
from crossinfer.plan.plan import Plan


class Residents:
    """The constants and states of one model's plans, each brought to a device once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.buffers: dict[tuple[str, int], Buffer] = {}
        """By name, and position of the device in the row."""
        self.state_devices: dict[str, int] = {}
        """Where each KV cache is, for it cannot move."""
        self.stream: LayerStream | None = None
        self._coming: BackgroundLoad | None = None
        """What goes to the first device already."""
        self._refusal: FormatError | None = None
        """What is wrong with the file, once that is known."""

    def begin(self, graph: Graph, device: Device, progress: Progress) -> None:
        """Start to load what `graph` needs to the first device, which loads in the background.

        `finish` waits for it, `free` gives it up. Raises DeviceError.
        """
        constants = list(graph.constants.values())
        self._coming = BackgroundLoad(self._model, device, constants, progress)

    @property
    def coming(self) -> BackgroundLoad | None:
        """What `begin` started, until `finish` has waited for it."""
        return self._coming

    def check_accepted(self) -> None:
        """Raises the FormatError that `finish` ended with, if it did, from any thread.

        The file stays as it is, while a DeviceError may pass: then `bring` tries again.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # or it would grow each time

    def finish(self) -> None:
        """Wait for what `begin` started. Raises FormatError, DeviceError, RequestError."""
        if self._coming is None:
            return
        try:
            taken = self._coming.take()
        except FormatError as error:
            self._refusal = error
            raise
        finally:
            self._coming = None
        self.buffers |= {(name, 0): buffer for name, buffer in taken.items()}
        self._model.release_files()

    def bring(self, plan: Plan, progress: Progress) -> None:
        """Have all that `plan` needs on its devices, but for what is on its way already.

        `progress` counts bytes of weights. Raises FormatError, DeviceError.
        """
        present = set(self.buffers)
        if self._coming is not None:
            present |= {(name, 0) for name in self._coming.names}
        kept = [
            (number, tensor)
            for number in range(len(plan.devices))
            for tensor in plan.constants_on(number)
            if (tensor.name, number) not in present
        ]
        streamed = _streamed(plan) if self.stream is None else []
        total = sum(stored_bytes(tensor) for _, tensor in (*kept, *streamed))
        done = 0
        brought: dict[tuple[str, int], Buffer] = {}
        stream: LayerStream | None = None
        try:
            with contextlib.ExitStack() as stack:
                loaders = {
                    number: stack.enter_context(plan.devices[number].loader())
                    for number in {number for number, _ in kept}
                }
                for number, tensor in kept:
                    progress("Loading weights", done, total)
                    brought[tensor.name, number] = load(loaders[number], self._model, tensor)
                    done += stored_bytes(tensor)
            if streamed:
                stream = LayerStream(plan.devices[0], plan.slots)
                for layer, tensor in streamed:
                    progress("Loading weights", done, total)
                    data = self._model.constant(tensor)
                    self._model.check_finite(tensor, data)
                    stream.put(layer, tensor, data)
                    done += stored_bytes(tensor)
        except BaseException:
            for buffer in brought.values():
                buffer.free()
            if stream is not None:
                stream.free()
            raise
        self.buffers |= brought
        self.stream = stream or self.stream
        if total:
            progress("Loading weights", done, total)
            self._model.release_files()
        for number, device in enumerate(plan.devices):
            for tensor in plan.states_on(number):
                if (tensor.name, number) not in present:
                    kind = tensor.type
                    buffer = device.alloc(kind.shape, kind.storage, kind.role, tensor.name)
                    self.buffers[tensor.name, number] = buffer
                    self.state_devices[tensor.name] = number

    def memory(self) -> dict[str, int]:
        """Bytes of `weights`, `kv` and `streamed`; see `StepRunner.memory`."""
        sizes = {key: buffer.size_in_bytes for key, buffer in self.buffers.items()}
        kv = sum(size for (name, _), size in sizes.items() if name in self.state_devices)
        weights = sum(sizes.values()) - kv
        if self._coming is not None:
            weights += self._coming.size_in_bytes
        slots, streamed = 0, 0
        if self.stream is not None:
            slots, streamed = self.stream.slot_bytes, self.stream.host_bytes
        return {"weights": weights + slots, "kv": kv, "streamed": streamed}

    def free(self) -> None:
        """Give all memory back."""
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        for buffer in self.buffers.values():
            buffer.free()
        self.buffers.clear()
        if self.stream is not None:
            self.stream.free()
            self.stream = None


def _streamed(plan: Plan) -> list[tuple[int, Tensor]]:
    """The weights of the streamed layers, each with its layer."""
    return [
        (layer, plan.graph.constants[str(name)])
        for layer, arena in plan.slots.items()
        for name in arena.regions
    ]
