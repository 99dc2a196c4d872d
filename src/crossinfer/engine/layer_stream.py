"""Streamed layers: their weights in host memory, and the slots through which a device sees them.

Each streamed layer's weights lie in host memory as the device keeps them, packed once. In a step
they go into a slot just before their layer is computed: the copy for the next layer runs while this
one is computed. A slot that holds the layer that is wanted is left as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceError
from crossinfer.graph.graph import Tensor
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data
from crossinfer.hal.host_memory import HostMemory
from crossinfer.plan.memory import Arena
from crossinfer.plan.split import SLOTS


class _Slot:
    """Memory of the device, the layer that it holds, and what happens to it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.layer: int | None = None
        self.filled: Fence | None = None
        self.used: Fence | None = None


class LayerStream:
    """The weights of the layers of `arenas`, which say where each lies in its slot, by name.

    Used by one thread.
    """

    def __init__(self, device: Device, arenas: Mapping[int, Arena]) -> None:
        """Raises OutOfDeviceMemory, DeviceLost."""
        self.arenas = arenas
        self._device = device
        self._order = sorted(arenas)
        self._memory: dict[int, HostMemory] = {}
        self._slots: list[_Slot] = []
        shape = (max(arena.size for arena in arenas.values()) // DType.I32.block_bytes,)
        try:
            for layer, arena in arenas.items():
                self._memory[layer] = device.host_memory(arena.size, f"layer {layer}")
            for _ in range(min(SLOTS, len(arenas))):
                self._slots.append(_Slot(device.alloc(shape, DType.I32, label="streamed layers")))
        except BaseException:
            self.free()
            raise
        self._of_layer = {
            layer: self._slots[number % len(self._slots)]
            for number, layer in enumerate(self._order)
        }

    @property
    def host_bytes(self) -> int:
        return sum(memory.data.size for memory in self._memory.values())

    @property
    def slot_bytes(self) -> int:
        """On the device."""
        return sum(slot.buffer.size_in_bytes for slot in self._slots)

    def put(self, layer: int, tensor: Tensor, data: Data) -> None:
        """Pack a weight into its layer's host memory."""
        region = self.arenas[layer].regions[tensor.name]
        target = self._memory[layer].data[region.offset : region.offset + region.size]
        kind = tensor.type
        self._device.pack(data, kind.shape, kind.storage, kind.role, target)

    def views(self) -> dict[str, View]:
        """Where the device sees each weight while its layer is computed, by name."""
        return {
            str(name): View(self._of_layer[layer].buffer, region.offset, region.size)
            for layer, arena in self.arenas.items()
            for name, region in arena.regions.items()
        }

    def wait_for(self, layer: int) -> None:
        """Return when the layer's weights are in its slot. Raises DeviceError.

        If they are not there yet, copies take longer than layers do: the next copy is then queued
        behind this one, so that none waits for the host.
        """
        slot = self._of_layer[layer]
        self._fill(layer)
        if slot.filled is not None:
            if not slot.filled.done:
                self._fill_next(layer)
            slot.filled.wait()
            slot.filled = None

    def computes(self, layer: int, fence: Fence) -> None:
        """The last work on the layer was submitted with `fence`: the next layer may come.

        Raises DeviceError.
        """
        self._of_layer[layer].used = fence
        self._fill_next(layer)

    def begin_next(self) -> None:
        """The step is done: have the first layers come for the one that follows."""
        for layer in self._order[: len(self._slots)]:
            self._fill(layer)

    def forget(self) -> None:
        """After an error: nothing is known of the slots, but no copy runs any more."""
        for slot in self._slots:
            for fence in (slot.filled, slot.used):
                if fence is not None:
                    with contextlib.suppress(DeviceError):
                        fence.wait()
            slot.layer = slot.filled = slot.used = None

    def free(self) -> None:
        """Give the memory back on both sides."""
        self.forget()
        for slot in self._slots:
            slot.buffer.free()
        for memory in self._memory.values():
            memory.free()
        self._slots.clear()
        self._memory.clear()

    def _fill_next(self, layer: int) -> None:
        following = self._order.index(layer) + 1
        if following < len(self._order) and len(self._slots) > 1:
            self._fill(self._order[following])

    def _fill(self, layer: int) -> None:
        """Start the copy into the layer's slot, unless it is there, once the slot is not in use."""
        slot = self._of_layer[layer]
        if slot.layer == layer:
            return
        for fence in (slot.filled, slot.used):
            if fence is not None:
                fence.wait()
        slot.layer = slot.filled = slot.used = None
        target = View(slot.buffer, 0, self.arenas[layer].size)
        slot.filled = self._device.copy_in(self._memory[layer], target)
        slot.layer = layer


def last_uses(layers: Sequence[int | None]) -> dict[int, int]:
    """For each layer in a row of segments (None: not streamed), its last position."""
    return {layer: position for position, layer in enumerate(layers) if layer is not None}
