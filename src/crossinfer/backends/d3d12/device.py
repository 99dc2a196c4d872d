"""A Direct3D 12 device behind the HAL."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence

from crossinfer.backends.d3d12.com import ComError
from crossinfer.backends.d3d12.commands import CommandPool
from crossinfer.backends.d3d12.constants import SHADER_MODEL_6_4, Heap
from crossinfer.backends.d3d12.debug import Messages
from crossinfer.backends.d3d12.descriptors import DescriptorPool
from crossinfer.backends.d3d12.directml.attach import DeviceHost, attach
from crossinfer.backends.d3d12.encode import Encoder
from crossinfer.backends.d3d12.errors import device_error, is_loss
from crossinfer.backends.d3d12.faults import loss_reason
from crossinfer.backends.d3d12.fence import D3D12Fence
from crossinfer.backends.d3d12.memory import allocation_of, create_buffer
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.recorded import EncodedRecording
from crossinfer.backends.d3d12.sharing import SharedDevice
from crossinfer.backends.d3d12.timers import TimerQueries, queries_of
from crossinfer.backends.d3d12.transfers import DeadlineError, Transfers
from crossinfer.core.errors import DeviceLost, InvalidUse
from crossinfer.hal import forks
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Kernel, Lowering, OpDescription, Operand
from crossinfer.hal.recording import Command, Recording
from crossinfer.hal.timer import Timer
from crossinfer.kernels.lowering import Capabilities
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.kernels.shader_device import ShaderDevice

MOST_VIEW_BYTES = (1 << 32) - 4
"""Shaders count bytes in 32 bits."""
_GRACE_S = 1.0
"""How long closing waits for a queue that was given up."""

# The API tells nothing of a GPU's processors.
_USUAL_FILL_GROUPS = {
    DeviceKind.DISCRETE_GPU: 256,
    DeviceKind.INTEGRATED_GPU: 64,
    DeviceKind.NPU: 64,
    DeviceKind.SOFTWARE_GPU: 16,
}


class D3D12Device(ShaderDevice):
    """Kernels of `crossinfer.kernels` on one compute queue. Handles are `Allocation`s."""

    one_access_per_buffer = True

    def __init__(
        self,
        native: NativeDevice,
        info: DeviceInfo,
        shared: SharedDevice,
        *,
        max_view_bytes: int = MOST_VIEW_BYTES,
        messages: Messages | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        """Takes over `native`, which `close` closes, and a use of `shared`.

        `messages` are those of the debug layer, if it is on. Raises the HAL's errors.
        """
        super().__init__(info, deadline_s=deadline_s)
        self.native = native
        self.shared = shared
        self.is_failing = False
        self._messages = messages
        integer_dots = shared.takes_model(SHADER_MODEL_6_4)
        self._capabilities = Capabilities(
            fill_groups=_USUAL_FILL_GROUPS[info.kind],
            max_view_bytes=max_view_bytes,
            integer_dots=integer_dots,
            # The API does not tell; GPUs that were made with this model in mind have them.
            fast_integer_dots=integer_dots and info.kind is not DeviceKind.SOFTWARE_GPU,
        )
        self.transfers = Transfers(native, lambda: self.deadline_s)
        descriptors = DescriptorPool(native.device)
        self._encoder = Encoder(CommandPool(native), shared.pipelines, descriptors)
        self.host = DeviceHost(native, self.transfers, descriptors)
        try:
            self.directml = attach(self.host, debug=messages is not None)
        except BaseException:
            native.close()
            shared.release()
            raise
        self._forgotten = weakref.finalize(self, _forget, native, shared)
        self._forgotten.atexit = False  # the process's end gives everything back
        forks.watch(self)

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        ours = super().lower(op, operands)
        return self.directml.lower(op, operands, ours) if self.directml is not None else ours

    def kernel(self, shader: ShaderKernel) -> Kernel:
        return self.shared.pipelines.kernel(shader)

    def lose(self, reason: str) -> DeviceLost:
        # A queue that did not answer in time may still run: who lost it forgets recordings, and
        # what they use must stay until the queue is idle.
        self.native.references.keep()
        return super().lose(reason)

    def fail(self, error: ComError) -> DeviceLost:
        """A call about what is in flight failed, so nothing is known of it any more."""
        self.is_failing = True  # fences that are asked from here on have no answer
        self.shared.is_stale = True
        return self.lose(loss_reason(self.native, error))

    def _alloc(self, size: int) -> object:
        with self._calls(f"allocate {size} bytes"):
            return create_buffer(self.native.device, Heap.DEFAULT, size)

    def _free(self, buffer: Buffer) -> None:
        # Who frees is not told of a loss; whoever calls next hears of it.
        with contextlib.suppress(DeviceLost), self._calls("free memory"):
            memory = allocation_of(buffer)
            self.transfers.forget(memory)
            memory.resource.release()

    def _write(self, view: View, data: Data) -> None:
        with self._calls(f"take {view.size} bytes"):
            self.transfers.write(allocation_of(view.buffer), view.offset, raw_bytes(data))

    def _read(self, view: View) -> bytes:
        with self._calls(f"give {view.size} bytes"):
            return self.transfers.read(allocation_of(view.buffer), view.offset, view.size)

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        del parameters
        with self._calls(f"record {len(commands)} commands"):
            return self._encoder.encode(commands)

    def _add_results(self, handle: object, results: tuple[View, ...]) -> None:
        assert isinstance(handle, EncodedRecording)
        with self._calls("record the way of results to the host"):
            handle.add_results(results)

    def _read_result(self, recording: Recording, number: int) -> bytes:
        return _encoded(recording).result(number)

    def _make_fence(self, recording: Recording) -> Fence:
        del recording
        return D3D12Fence(self)

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        assert isinstance(fence, D3D12Fence)
        encoded = _encoded(recording)
        with self._calls("run a recording"):
            if params and recording.parameters is not None:
                encoded.set_parameters(recording.parameters, params)
            try:
                fence.value = encoded.submit(len(params))
            except ComError as error:
                # It runs, and nothing will tell when it ends.
                raise self.fail(error) from None

    def _make_timer(self, capacity: int) -> object:
        with self._calls("make a timer"):
            return TimerQueries(self.native, capacity)

    def _read_timer(self, timer: Timer) -> list[float | None]:
        return queries_of(timer).read()

    def _close(self) -> None:
        forks.unwatch(self)
        if not self._forgotten.detach():
            return  # after a fork
        # Releasing what a queue still uses could harm the whole process.
        if self.native.becomes_idle(self.deadline_s if self.lost is None else _GRACE_S):
            complaints = self._complaints()
            self.native.close()
            self.shared.release()
            if complaints:
                raise InvalidUse(complaints)
        else:
            self.shared.give_up()
            self.native.abandon()

    @contextlib.contextmanager
    def _calls(self, what: str) -> Iterator[None]:
        """Turns what goes wrong inside into the HAL's errors; `what` completes "cannot"."""
        try:
            yield
        except DeadlineError as error:
            raise self.lose(str(error)) from None
        except ComError as error:
            # A device that is removed may say first that it has no memory.
            if is_loss(error) or self.native.removed_reason():
                raise self.fail(error) from None
            raise device_error(error, self.info.name, what, self.memory_in_use) from None
        if complaints := self._complaints():
            raise InvalidUse(complaints)

    def _complaints(self) -> str:
        taken = self._messages.take() if self._messages is not None else []
        return f"Direct3D 12's debug layer objects: {' '.join(taken)}" if taken else ""

    def _leave_to_parent(self) -> None:
        self._forgotten.detach()
        self.native.abandon()
        self.shared.device.references.abandon()


def _forget(native: NativeDevice, shared: SharedDevice) -> None:
    """Nobody closed a device, and nobody refers to it."""
    if native.becomes_idle(_GRACE_S):
        native.close()
        shared.release()
    else:
        shared.give_up()
        native.abandon()


def _encoded(recording: Recording) -> EncodedRecording:
    assert isinstance(recording.handle, EncodedRecording)
    return recording.handle
