"""What the devices that run these shaders share: their kernels, and how weights lie on them."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence

from crossinfer.core.errors import InvalidUse
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Access, Binding, Role
from crossinfer.hal.device import Device
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.kernel import Dispatch, Kernel, Lowering, OpDescription, Operand
from crossinfer.kernels.lowering import FUSIONS, Capabilities, lower, why_too_large
from crossinfer.kernels.packing import pack_weight, weight_bytes
from crossinfer.kernels.shader import ShaderKernel


class ShaderDevice(Device):
    """A device whose kernels are shaders; a backend sets `_capabilities` when it opens one."""

    fusions = FUSIONS
    _capabilities: Capabilities

    @abc.abstractmethod
    def kernel(self, shader: ShaderKernel) -> Kernel:
        """The HAL's kernel of a shader, the same one each time; makes no pipeline yet."""

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return lower(op, operands, self._capabilities, self.kernel)

    def refusal(self, op: OpDescription, operands: Mapping[str, Operand]) -> str:
        return why_too_large(op, operands, self._capabilities)

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        if role is Role.WEIGHT:
            return weight_bytes(shape, dtype)
        return super().packed_size(shape, dtype, role)

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        if role is Role.WEIGHT:
            return pack_weight(raw_bytes(data), shape, dtype)
        return super()._pack(data, shape, dtype, role)


def shader_of(dispatch: Dispatch) -> tuple[ShaderKernel, list[Binding], list[Binding]]:
    """The shader of a dispatch, its bindings that are only read, and those that are written.

    Raises InvalidUse if they are not what the shader takes.
    """
    shader = dispatch.kernel.handle
    if not isinstance(shader, ShaderKernel):
        raise InvalidUse(f"Kernel {dispatch.kernel.name} is not one of this device.")
    reads = [b for b in dispatch.bindings if b.access is Access.READ]
    writes = [b for b in dispatch.bindings if b.access is not Access.READ]
    given = (len(reads), len(writes), len(dispatch.constants))
    if given != (shader.reads, shader.writes, shader.constant_bytes):
        raise InvalidUse(
            f"Kernel {shader.name} takes {shader.reads} views to read, {shader.writes} to "
            f"write and {shader.constant_bytes} bytes of constants, but got {given[0]}, "
            f"{given[1]} and {given[2]}."
        )
    return shader, reads, writes
