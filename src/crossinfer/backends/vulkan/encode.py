"""Makes recordings: pipelines, descriptor sets, commands, and barriers where the HAL has them."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.vulkan.commands import WORK, CommandBuffer, CommandPool
from crossinfer.backends.vulkan.constants import Stage
from crossinfer.backends.vulkan.descriptors import DescriptorSets, Range, SetKey
from crossinfer.backends.vulkan.memory import Allocator, place_of
from crossinfer.backends.vulkan.pipelines import Pipeline, Pipelines
from crossinfer.backends.vulkan.recorded import EncodedRecording
from crossinfer.backends.vulkan.timers import queries_of
from crossinfer.core.errors import KernelUnsupported
from crossinfer.hal.buffer import View
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Command, CopyCommand, DispatchCommand, TimestampCommand
from crossinfer.kernels.shader_device import shader_of

PART_COMMANDS = 32
"""In a part of a recording; see `recorded`."""

_Run = tuple[Pipeline, SetKey]
"""What a dispatch needs beside its grid and constants."""


class Encoder:
    """Makes recordings on one device. Used by one thread at a time."""

    def __init__(self, pool: CommandPool, staging: Allocator, pipelines: Pipelines) -> None:
        self._pool = pool
        self._staging = staging
        self._pipelines = pipelines

    def encode(self, commands: Sequence[Command]) -> EncodedRecording:
        """Raises VulkanError, KernelUnsupported, InvalidUse."""
        runs = [
            self._run(command.dispatch) if isinstance(command, DispatchCommand) else None
            for command in commands
        ]
        sets = DescriptorSets(self._pool.device, [run[1] for run in runs if run is not None])
        encoded = EncodedRecording(self._pool, self._staging, sets)
        writer = _Writer(sets)
        for start in range(0, max(1, len(commands)), PART_COMMANDS):
            part = encoded.add_part()
            part.begin()
            if start == 0:
                writer.barrier(part)
            end = start + PART_COMMANDS
            for command, run in zip(commands[start:end], runs[start:end], strict=True):
                writer.record(part, command, run)
            part.end()
        return encoded

    def _run(self, dispatch: Dispatch) -> _Run:
        shader, reads, writes = shader_of(dispatch)
        self._check_limits(dispatch)
        pipeline = self._pipelines.pipeline(shader)
        return pipeline, (pipeline.set_layout, tuple(_range(b.view) for b in [*reads, *writes]))

    def _check_limits(self, dispatch: Dispatch) -> None:
        limits = self._pool.device.physical.limits
        largest = max((b.view.size for b in dispatch.bindings), default=0)
        if largest > limits.maxStorageBufferRange:
            raise KernelUnsupported(
                f"Kernel {dispatch.kernel.name} needs a view of {largest} bytes, and this device "
                f"allows {limits.maxStorageBufferRange}."
            )
        most = tuple(limits.maxComputeWorkGroupCount)
        if any(size > limit for size, limit in zip(dispatch.grid, most, strict=True)):
            raise KernelUnsupported(
                f"Kernel {dispatch.kernel.name} needs the grid {dispatch.grid}, and this device "
                f"allows {most}."
            )


class _Writer:
    """Puts commands into command buffers, and remembers what kind of work a barrier waits for."""

    def __init__(self, sets: DescriptorSets) -> None:
        self._sets = sets
        # What was submitted before may be anything.
        self._unfinished: Stage = WORK

    def barrier(self, part: CommandBuffer) -> None:
        part.barrier(self._unfinished)
        self._unfinished = Stage(0)

    def record(self, part: CommandBuffer, command: Command, run: _Run | None) -> None:
        match command:
            case TimestampCommand(timer, index):
                part.barrier()
                self._unfinished = Stage(0)
                part.timestamp(queries_of(timer).pool, index)
            case CopyCommand(source, destination, barrier):
                if barrier is not None:
                    self.barrier(part)
                part.copy(place_of(source), place_of(destination), source.size)
                self._unfinished |= Stage.TRANSFER
            case DispatchCommand(dispatch, barrier):
                assert run is not None
                if barrier is not None:
                    self.barrier(part)
                self._dispatch(part, dispatch, *run)
                self._unfinished |= Stage.COMPUTE_SHADER

    def _dispatch(
        self, part: CommandBuffer, dispatch: Dispatch, pipeline: Pipeline, key: SetKey
    ) -> None:
        part.bind(pipeline.handle, pipeline.layout, self._sets.handles[key])
        if dispatch.constants:
            part.push_constants(pipeline.layout, dispatch.constants)
        part.dispatch(dispatch.grid)


def _range(view: View) -> Range:
    buffer, offset = place_of(view)
    return buffer, offset, view.size
