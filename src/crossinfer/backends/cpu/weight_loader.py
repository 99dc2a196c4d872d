"""Weights on their way into the CPU's memory: packed by the queue's workers, in one pass.

A tensor is cut into pieces, each a packet of the queue: a worker reads the mapped file and writes
tiles where they stay. Python hands over many pieces at once, and prepares the next batch meanwhile.
The pages of the file behind a batch are let go of when it is done and the next is handed over, so
that no more than three batches of them are in memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.aql.packets import BarrierAnd, KernelDispatch, encode_packets
from crossinfer.aql.signals import Signals
from crossinfer.backends.cpu.encode import memory_of
from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET
from crossinfer.backends.cpu.kernels.layout import (
    RECORD_BYTES,
    tile_bytes,
    tile_count,
    tile_rows,
)
from crossinfer.backends.cpu.kernels.packing import (
    pack_constants,
    pack_kernel,
    pack_workgroups,
    piece_rows,
)
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed, trim_heap
from crossinfer.backends.cpu.queue import NativeQueue
from crossinfer.backends.cpu.signal_pool import OwnedSignals
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import InvalidUse
from crossinfer.core.records import record
from crossinfer.formats.blocks import StorageType
from crossinfer.formats.tensors import prefetch_pages, release_pages
from crossinfer.hal.buffer import Buffer, Role
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.loading import Loader

if TYPE_CHECKING:
    from crossinfer.backends.cpu.device import CpuDevice

BATCHES = 2
"""How many are in flight at most."""
_PIECE_BYTES = 4 << 20
_LEAST_BATCH, _MOST_BATCH = 1 << 20, 16 << 20
"""Bytes of the first batch, which has the workers wait, and of later ones."""
_ARGUMENTS = np.dtype(
    {
        "names": ["views", "constants"],
        "formats": [(np.uint64, 4), (np.int32, 4)],
        "offsets": [0, CONSTANTS_OFFSET],
        "itemsize": CONSTANTS_OFFSET + 64,
    }
)


@record
class _Piece:
    """Some tiles of a tensor, and how they are made of its rows."""

    data: memoryview
    source: int
    """The address of `data`."""
    memory: Array
    """Where the whole tensor goes."""
    target: int
    """The address of the first tile in it."""
    records: int
    """The address of the first tile's record, if there are records."""
    kernel: int
    constants: tuple[int, int, int, int]
    workgroups: int
    label: str
    check: Callable[[], None]


class _Batch:
    """Pieces in flight, and the memory that their packets refer to."""

    def __init__(self, pieces: list[_Piece], signals: Signals, number: int) -> None:
        """The end of the batch counts down the signal `number`."""
        self.pieces = pieces
        self.signal = number
        self.bad = np.zeros(len(pieces), dtype=np.uint32)
        self._memory = allocate_zeroed(len(pieces) * _ARGUMENTS.itemsize)
        arguments = self._memory.view(_ARGUMENTS)
        bad, first = address_of(self.bad), address_of(self._memory)
        self.data = [piece.data for piece in sorted(pieces, key=lambda piece: piece.source)]
        """Of all pieces, in the order of their addresses."""
        arguments["views"] = [
            (piece.source, piece.target, bad + number * self.bad.itemsize, piece.records)
            for number, piece in enumerate(pieces)
        ]
        arguments["constants"] = [piece.constants for piece in pieces]
        packets = [
            KernelDispatch(
                piece.kernel, first + number * _ARGUMENTS.itemsize, (piece.workgroups, 1, 1)
            )
            for number, piece in enumerate(pieces)
        ]
        end = BarrierAnd(barrier=True, completion_signal=signals.address(number))
        self.packets = encode_packets([*packets, end])


class WeightLoader(Loader):
    """The loader of a CPU device. `signals` are `BATCHES` of them."""

    def __init__(self, device: CpuDevice, queue: NativeQueue, signals: OwnedSignals) -> None:
        super().__init__(device)
        self._device: CpuDevice = device
        self._queue = queue
        self._owned = signals
        self._signals = signals.signals
        self._waiting: list[_Piece] = []
        self._waiting_bytes = 0
        self._batch_bytes = _LEAST_BATCH
        self._submitted = 0
        self._running: deque[_Batch] = deque()
        self._kernels: dict[StorageType, int] = {}

    def add(
        self,
        data: Data,
        shape: Sequence[int],
        dtype: StorageType,
        role: Role,
        label: str,
        check: Callable[[], None],
    ) -> Buffer:
        if role is not Role.WEIGHT:
            return super().add(data, shape, dtype, role, label, check)
        self._device.check_upload(data, shape, dtype, label)
        buffer = self._device.alloc(shape, dtype, role, label)
        try:
            self._pack(raw_bytes(data), shape, dtype, memory_of(buffer), label, check)
        except BaseException:
            self.abandon()
            self._device.free(buffer)
            raise
        return buffer

    def finish(self) -> None:
        self._submit()
        while self._running:
            release_pages(*self._settle().data)
        trim_heap()  # reading a model's file takes many megabytes of it for a while

    def abandon(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        try:
            while self._running and not self._is_over():
                self._wait()
        except BaseException as error:
            self._device.lose(f"loading was cut short ({type(error).__name__})")
            raise
        finally:
            if self._running:
                # A worker may touch memory that everybody else is about to forget.
                self._device.keep(self)

    def _pack(
        self,
        data: memoryview,
        shape: Sequence[int],
        storage: StorageType,
        target: Array,
        label: str,
        check: Callable[[], None],
    ) -> None:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        row_bytes, of_tile = storage.bytes_for((columns,)), tile_bytes(columns, storage)
        step = piece_rows(columns, storage, _PIECE_BYTES)
        kernel = self._kernel(storage)
        source, first = address_of(np.frombuffer(data, dtype=np.uint8)), address_of(target)
        records = first + tile_count(rows, storage) * of_tile
        for start in range(0, rows, step):
            count = min(step, rows - start)
            tile = start // tile_rows(storage)
            piece = _Piece(
                data[start * row_bytes : (start + count) * row_bytes],
                source + start * row_bytes,
                target,
                first + tile * of_tile,
                records + tile * RECORD_BYTES,
                kernel,
                pack_constants(count, columns, storage, tile),
                pack_workgroups(count, columns, storage),
                label,
                check,
            )
            self._waiting.append(piece)
            self._waiting_bytes += piece.data.nbytes
            if self._waiting_bytes >= self._batch_bytes:
                self._submit()

    def _kernel(self, storage: StorageType) -> int:
        """The address of the kernel that packs a storage: hundreds of weights have a few."""
        if storage not in self._kernels:
            self._kernels[storage] = pack_kernel(storage).address
        return self._kernels[storage]

    def _submit(self) -> None:
        """Hand the pieces that wait over to the workers."""
        if not self._waiting:
            return
        self.check_going()
        done = self._settle() if len(self._running) == BATCHES else None
        try:
            batch = _Batch(self._waiting, self._signals, self._submitted % BATCHES)
        except MemoryError:
            raise self._device.no_memory_for("loading") from None
        self._waiting, self._waiting_bytes = [], 0
        self._batch_bytes = min(2 * self._batch_bytes, _MOST_BATCH)
        self._submitted += 1
        prefetch_pages(*batch.data)
        self._signals.store(batch.signal, 1)
        try:
            self._running.append(batch)
            self._queue.submit(batch.packets)
        except TimeoutError as error:
            raise self._device.lose(str(error)) from None
        except BaseException as error:
            self._device.lose(f"a submission was cut short ({type(error).__name__})")
            raise
        if done is not None:
            release_pages(*done.data)  # not before: it takes a while, and workers have nothing then

    def _settle(self) -> _Batch:
        """Have the oldest batch done, and its numbers looked at."""
        batch = self._wait()
        for number in np.flatnonzero(batch.bad):
            piece = batch.pieces[number]
            piece.check()
            raise InvalidUse(f"{piece.label} holds NaN or infinity.")
        return batch

    def _wait(self) -> _Batch:
        """The oldest batch, which is done then."""
        device, batch = self._device, self._running[0]
        if not self._is_over() and not self._queue.wait(
            self._signals, batch.signal, device.deadline_s, self._is_over
        ):
            device.lose(self._queue.error or f"no answer within {device.deadline_s:g} seconds")
        device.check_usable()
        self._running.popleft()
        return batch

    def _is_over(self) -> bool:
        """The device is lost, or was closed by who did not wait: it may never answer."""
        return self._device.lost is not None or self._device.closed
