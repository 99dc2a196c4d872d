"""Where DirectML meets the device: whether it is used, and before or after our kernels.

The default is not to use it. Our kernels read quantized weights, fuse what follows a product, and
are the same code on every driver; DirectML has no such products, is in maintenance, and runs
drivers' own code (meta commands) that differs between releases. What it may do better are products
of f32 and f16 weights with many rows, where a driver has matrix hardware for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import Heap
from crossinfer.backends.d3d12.descriptors import DescriptorPool
from crossinfer.backends.d3d12.directml.library import find_library
from crossinfer.backends.d3d12.directml.lowering import lower_by_directml
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.memory import create_buffer
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.transfers import Transfers
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import KernelUnsupported
from crossinfer.core.settings import read_settings
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.kernel import Lowering, OpDescription, Operand


class DeviceHost:
    """The Host of operators on one of our devices."""

    def __init__(
        self, native: NativeDevice, transfers: Transfers, descriptors: DescriptorPool
    ) -> None:
        self.descriptors = descriptors
        self._native = native
        self._transfers = transfers

    @property
    def device(self) -> ComObject:
        return self._native.device

    def make_buffer(self, size: int) -> ComObject:
        return create_buffer(self._native.device, Heap.DEFAULT, size).resource

    def run(self, record: Callable[[ComObject], None]) -> None:
        self._transfers.run_once(lambda commands: record(commands.list))


class DirectMl:
    """DirectML on one of our devices, as the setting `directml` wants it."""

    def __init__(self, session: Session, *, comes_first: bool) -> None:
        self.session = session
        self._comes_first = comes_first

    def lower(
        self, op: OpDescription, operands: Mapping[str, Operand], ours: Sequence[Lowering]
    ) -> Sequence[Lowering]:
        """`ours` and what DirectML offers, best first.

        Where DirectML comes first, ops that join products which it could run are left apart.
        """
        if self._comes_first and isinstance(op, GatedLinear | QkvLinear):
            weights = [operands[name] for name in op.stored]
            return () if all(self._takes(weight) for weight in weights) else ours
        theirs = lower_by_directml(self.session, op, operands)
        return (*theirs, *ours) if self._comes_first else (*ours, *theirs)

    def _takes(self, weight: Operand) -> bool:
        return weight.storage in (DType.F32, DType.F16) and self.session.supports(weight.storage)

    def close(self) -> None:
        """Release everything. Nothing that was recorded is in flight."""
        self.session.close()


def attach(host: DeviceHost, *, debug: bool, wanted: str | None = None) -> DirectMl | None:
    """DirectML for a device; None if the setting is off, or auto and there is none here.

    `wanted` stands for the setting. `debug`: the debug layer is on, and DirectML is to explain
    itself to it. Raises KernelUnsupported if DirectML is asked for and cannot be had.
    """
    wanted = read_settings().directml if wanted is None else wanted
    if wanted == "off":
        return None
    why = "there is no DirectML library here"
    library = find_library(host.device.abi)
    if library is not None:
        try:
            session = Session(host, library, debug=debug)
            return DirectMl(session, comes_first=wanted == "on")
        except ComError as error:
            why = str(error)
    if wanted == "auto":
        return None
    raise KernelUnsupported(
        f"DirectML is asked for and cannot be used: {why}. Install the wheel onnxruntime-directml, "
        "name a library by CROSSINFER_DIRECTML_LIBRARY, or set CROSSINFER_DIRECTML to off."
    )
