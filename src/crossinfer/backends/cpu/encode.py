"""Recordings as packets and kernarg blocks, ready to be copied into the ring."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from crossinfer.aql.packets import BarrierAnd, KernelDispatch, Packet, encode_packets
from crossinfer.backends.cpu.copy_kernel import copy_constants, copy_grid, copy_kernel
from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET, CpuKernel
from crossinfer.backends.cpu.memory import address_of, allocate, allocate_zeroed
from crossinfer.backends.cpu.signal_pool import OwnedSignals, SignalPool
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import InvalidUse
from crossinfer.core.records import record
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.kernel import Grid, Kernel
from crossinfer.hal.recording import Command, CopyCommand, DispatchCommand, TimestampCommand
from crossinfer.hal.timer import Timer

_BLOCK_ALIGNMENT = 64


@record
class _Launch:
    """A kernel, the addresses it gets, its constants and its grid in workgroups."""

    kernel: Kernel
    addresses: tuple[int, ...]
    constants: bytes
    grid: Grid
    barrier: bool

    @property
    def kernarg_bytes(self) -> int:
        return CONSTANTS_OFFSET + align_up(len(self.constants), _BLOCK_ALIGNMENT)

    def packet(self, kernargs: Array, address: int, offset: int) -> KernelDispatch:
        """Fills the kernarg block at `offset` of `kernargs`, which start at `address`."""
        struct.pack_into(f"{len(self.addresses)}Q", kernargs.data, offset, *self.addresses)
        start = offset + CONSTANTS_OFFSET
        kernargs.data[start : start + len(self.constants)] = self.constants
        handle = self.kernel.handle
        if not isinstance(handle, CpuKernel):
            raise InvalidUse(f"Kernel {self.kernel.name} is not one of this device.")
        return KernelDispatch(handle.address, address + offset, self.grid, barrier=self.barrier)


@record
class EncodedRecording:
    """Packets, the kernargs that they point to, and the signal that the last one counts down."""

    packets: Array
    kernargs: Array
    signal: OwnedSignals


def encode_recording(commands: Sequence[Command], pool: SignalPool) -> EncodedRecording:
    """Barrier bits are where the commands have barriers; on the first packet; and on both sides of
    a timestamp. The last packet waits for all and completes the recording's signal.

    Raises InvalidUse, MemoryError.
    """
    launches: list[_Launch | BarrierAnd] = []
    starts: dict[Buffer, int] = {}
    drained = True  # a barrier stands before the recording
    for command in commands:
        if isinstance(command, TimestampCommand):
            signals = timer_signals(command.timer).signals
            address = signals.address(command.index)
            launches.append(BarrierAnd(barrier=True, completion_signal=address))
            drained = True
        else:
            launches.append(_launch(command, starts, drained or command.barrier is not None))
            drained = False
    signal = pool.take(initial=0)
    last = BarrierAnd(barrier=True, completion_signal=signal.signals.address(0))
    packets, kernargs = _place(launches)
    return EncodedRecording(encode_packets([*packets, last]), kernargs, signal)


class ParameterCopy:
    """Copies parameters into their buffer in the queue's order, from memory of its own."""

    def __init__(self, destination: Buffer) -> None:
        self._staging = allocate(destination.size_in_bytes)
        self._destination = destination.view()
        self._kernargs: Array | None = None

    def packets(self, params: bytes) -> Array:
        """The packet for these parameters. The one before must have completed."""
        self._staging[: len(params)] = np.frombuffer(params, dtype=np.uint8)
        addresses = (address_of(self._staging), address_of_view(self._destination))
        launch = _copy(addresses, len(params), barrier=True)
        packets, self._kernargs = _place([launch])
        return encode_packets(packets)


def memory_of(buffer: Buffer) -> Array:
    """The bytes of a buffer of this backend."""
    assert isinstance(buffer.handle, np.ndarray)
    return buffer.handle


def address_of_view(view: View) -> int:
    return address_of(memory_of(view.buffer)) + view.offset


def timer_signals(timer: Timer) -> OwnedSignals:
    """A timer's entries: signals, whose times are its timestamps."""
    assert isinstance(timer.handle, OwnedSignals)
    return timer.handle


def _launch(
    command: DispatchCommand | CopyCommand, starts: dict[Buffer, int], barrier: bool
) -> _Launch:
    """`starts` remembers where buffers are: a recording has a few in thousands of views."""

    def address(view: View) -> int:
        start = starts.get(view.buffer)
        if start is None:
            start = starts[view.buffer] = address_of(memory_of(view.buffer))
        return start + view.offset

    if isinstance(command, CopyCommand):
        addresses = (address(command.source), address(command.destination))
        return _copy(addresses, command.source.size, barrier=barrier)
    dispatch = command.dispatch
    return _Launch(
        dispatch.kernel,
        tuple([address(binding.view) for binding in dispatch.bindings]),
        dispatch.constants,
        dispatch.grid,
        barrier,
    )


def _copy(addresses: tuple[int, int], size: int, *, barrier: bool) -> _Launch:
    return _Launch(copy_kernel(), addresses, copy_constants(size), copy_grid(size), barrier)


def _place(launches: Sequence[_Launch | BarrierAnd]) -> tuple[list[Packet], Array]:
    """The packets, and one piece of memory with all kernarg blocks."""
    size = sum(launch.kernarg_bytes for launch in launches if isinstance(launch, _Launch))
    kernargs = allocate_zeroed(size)
    packets: list[Packet] = []
    address, offset = address_of(kernargs), 0
    for launch in launches:
        if isinstance(launch, _Launch):
            packets.append(launch.packet(kernargs, address, offset))
            offset += launch.kernarg_bytes
        else:
            packets.append(launch)
    return packets, kernargs
