"""A Vulkan device behind the HAL."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterator, Sequence

from crossinfer.backends.vulkan.commands import CommandPool
from crossinfer.backends.vulkan.encode import Encoder
from crossinfer.backends.vulkan.errors import VulkanError, device_error
from crossinfer.backends.vulkan.faults import loss_reason
from crossinfer.backends.vulkan.fence import FencePool, VulkanFence
from crossinfer.backends.vulkan.host_copies import HostCopies
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.memory import (
    DEVICE_MEMORY,
    DOWNLOAD_MEMORY,
    UPLOAD_MEMORY,
    Allocation,
    Allocator,
    Block,
    Pieces,
    parts_of,
    spans_of,
)
from crossinfer.backends.vulkan.physical import PhysicalDevice
from crossinfer.backends.vulkan.pipelines import Pipelines
from crossinfer.backends.vulkan.recorded import EncodedRecording
from crossinfer.backends.vulkan.timers import TimerQueries, queries_of
from crossinfer.backends.vulkan.transfers import DeadlineError, Transfers
from crossinfer.backends.vulkan.validation import Messenger
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceLost, InvalidUse
from crossinfer.formats.blocks import StorageType
from crossinfer.hal import forks
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.host_memory import HostMemory
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Kernel
from crossinfer.hal.recording import Command, Recording
from crossinfer.hal.timer import Timer
from crossinfer.kernels.lowering import Capabilities
from crossinfer.kernels.row_ranges import range_bytes
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.kernels.shader_device import ShaderDevice

_GRACE_S = 1.0
"""How long closing waits for a queue that was given up."""

_USUAL_FILL_GROUPS = {
    DeviceKind.DISCRETE_GPU: 256,
    DeviceKind.INTEGRATED_GPU: 64,
    DeviceKind.SOFTWARE_GPU: 16,
}

_PROCESSORS_OF_THEIR_OWN = (DeviceKind.DISCRETE_GPU, DeviceKind.INTEGRATED_GPU)


class VulkanDevice(ShaderDevice):
    """Kernels of `crossinfer.kernels` on one compute queue. Handles are `Allocation`s."""

    def __init__(
        self,
        native: LogicalDevice,
        info: DeviceInfo,
        *,
        messenger: Messenger | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        """Takes over `native`, which `close` closes. Raises the HAL's errors.

        `messenger` is that of the validation layers, if they are on.
        """
        super().__init__(info, deadline_s=deadline_s)
        self.native = native
        self.messenger = messenger
        self.is_failing = False
        physical = native.physical
        self._capabilities = Capabilities(
            fill_groups=_fill_groups(physical, info.kind),
            max_view_bytes=min(physical.limits.maxStorageBufferRange, physical.max_allocation),
            shared_bytes=physical.limits.maxComputeSharedMemorySize,
            integer_dots=native.has_integer_dots,
            fast_integer_dots=native.has_integer_dots and physical.has_fast_integer_dots(),
        )
        try:
            with self._calls("start"):
                self._transfers = Transfers(native, lambda: self.deadline_s)
                self._memory = Allocator(native, DEVICE_MEMORY, self._forget_block)
                self._fences = FencePool(native)
                self._pipelines = Pipelines(native, info.name)
                self._pool = CommandPool(native)
                staging = Allocator(native, UPLOAD_MEMORY)
                self._encoder = Encoder(self._pool, staging, self._pipelines)
                self._result_memory = Allocator(native, DOWNLOAD_MEMORY)
                self._host_copies = HostCopies(native)
        except BaseException:
            native.close()
            raise
        self._forgotten = weakref.finalize(self, _forget, native)
        self._forgotten.atexit = False  # the process's end gives everything back
        forks.watch(self)

    def kernel(self, shader: ShaderKernel) -> Kernel:
        return self._pipelines.kernel(shader)

    def fail(self, error: VulkanError) -> DeviceLost:
        """A call about what is in flight failed, so nothing is known of it any more."""
        self.is_failing = True  # fences that are asked from here on have no answer
        return self.lose(loss_reason(self.native, error) if error.is_loss else str(error))

    def _forget_block(self, block: Block) -> None:
        self._transfers.forget(block)
        self._host_copies.forget(block)

    def _alloc(self, size: int) -> object:
        with self._calls(f"allocate {size} bytes"):
            return self._memory.alloc(size)

    def _alloc_tensor(
        self, size: int, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> object:
        if role is not Role.WEIGHT or size <= self.native.physical.max_allocation:
            return self._alloc(size)
        piece = range_bytes(shape[-1], dtype, self._capabilities.max_view_bytes)
        if piece == 0:
            return self._alloc(size)  # which says that it is too large
        parts: list[Allocation] = []
        with self._calls(f"allocate {size} bytes"):
            try:
                while (left := size - piece * len(parts)) > 0:
                    parts.append(self._memory.alloc(min(piece, left)))
            except VulkanError:
                for part in parts:
                    self._memory.free(part)
                raise
        return Pieces(tuple(parts), piece)

    def _free(self, buffer: Buffer) -> None:
        # Who frees is not told of a loss; whoever calls next hears of it.
        with contextlib.suppress(DeviceLost), self._calls("free memory"):
            for part in parts_of(buffer):
                self._memory.free(part)

    def _write(self, view: View, data: Data) -> None:
        raw, start = raw_bytes(data), 0
        with self._calls(f"take {view.size} bytes"):
            for part, offset, size in spans_of(View(view.buffer, view.offset, max(1, len(raw)))):
                self._transfers.write(part, offset, raw[start : start + size])
                start += size

    def _read(self, view: View) -> bytes:
        with self._calls(f"give {view.size} bytes"):
            return b"".join(self._transfers.read(*span) for span in spans_of(view))

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        del parameters
        self.native.destroy_unused()
        with self._calls(f"record {len(commands)} commands"):
            return self._encoder.encode(commands)

    def _add_results(self, handle: object, results: tuple[View, ...]) -> None:
        assert isinstance(handle, EncodedRecording)
        with self._calls("record the way of results to the host"):
            handle.add_results(self._result_memory, results)

    def _read_result(self, recording: Recording, number: int) -> bytes:
        return _encoded(recording).result(number)

    def _make_fence(self, recording: Recording) -> Fence:
        del recording
        with self._calls("make a fence"):
            return VulkanFence(self, self._fences)

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        assert isinstance(fence, VulkanFence)
        encoded = _encoded(recording)
        with self._calls("run a recording"):
            if params and recording.parameters is not None:
                encoded.set_parameters(recording.parameters, params)
            submissions = encoded.submissions(len(params))
            encoded.started = time.perf_counter()
            fence.on_finish = encoded.ended
            if encoded.seconds < math.inf and self.info.kind in _PROCESSORS_OF_THEIR_OWN:
                fence.expected = encoded.started + encoded.seconds
                fence.stays_awake = self.info.kind is DeviceKind.DISCRETE_GPU
            for number, submission in enumerate(submissions, 1):
                handle = fence.handle if number == len(submissions) else None
                try:
                    self.native.submit(submission, handle)
                except VulkanError as error:
                    if number > 1:  # a part runs already, and nothing will tell when it ends
                        raise self.fail(error) from None
                    raise

    def _host_memory(self, size: int) -> tuple[Array, object]:
        with self._calls(f"allocate {size} bytes of the host"):
            return self._host_copies.alloc(size)

    def _free_host_memory(self, memory: HostMemory) -> None:
        with contextlib.suppress(DeviceLost), self._calls("free memory of the host"):
            self._host_copies.free(_mapped(memory))

    def _copy_in(self, source: HostMemory, target: View) -> Fence:
        with self._calls(f"copy {target.size} bytes"):
            fence = VulkanFence(self, self._fences)
            self._host_copies.submit(_mapped(source), target, fence.handle)
        return fence

    def _make_timer(self, capacity: int) -> object:
        self.native.destroy_unused()
        with self._calls("make a timer"):
            queries = TimerQueries(self.native, capacity)
            self._transfers.run(lambda c: c.reset_timestamps(queries.pool, capacity))
        return queries

    def _read_timer(self, timer: Timer) -> list[float | None]:
        with self._calls("read a timer"):
            return queries_of(timer).read()

    def _close(self) -> None:
        forks.unwatch(self)
        if not self._forgotten.detach():
            return  # after a fork
        # Destroying what a queue still uses could harm the whole process.
        if self.native.becomes_idle(self.deadline_s if self.lost is None else _GRACE_S):
            self._pipelines.save()
            self.native.close()
            self._check_validation()

    @contextlib.contextmanager
    def _calls(self, what: str) -> Iterator[None]:
        """Turns what goes wrong inside into the HAL's errors; `what` completes "cannot"."""
        try:
            yield
        except DeadlineError as error:
            raise self.lose(str(error)) from None
        except VulkanError as error:
            # A device that is lost may say first that it has no memory.
            if error.is_loss or self.native.is_lost():
                raise self.fail(error) from None
            raise device_error(error, self.info.name, what, self.memory_in_use) from None
        self._check_validation()

    def _check_validation(self) -> None:
        if self.messenger is not None and (complaints := self.messenger.take()):
            raise InvalidUse(f"Vulkan's validation layers object: {' '.join(complaints)}")

    def _leave_to_parent(self) -> None:
        self._forgotten.detach()


def _forget(native: LogicalDevice) -> None:
    """Nobody closed a device, and nobody refers to it."""
    if native.becomes_idle(_GRACE_S):
        native.close()


def _encoded(recording: Recording) -> EncodedRecording:
    assert isinstance(recording.handle, EncodedRecording)
    return recording.handle


def _mapped(memory: HostMemory) -> Allocation:
    assert isinstance(memory.handle, Allocation)
    return memory.handle


def _fill_groups(physical: PhysicalDevice, kind: DeviceKind) -> int:
    """Workgroups that keep the device busy: some for each multiprocessor, where that is known."""
    return 4 * physical.multiprocessors() or _USUAL_FILL_GROUPS[kind]
