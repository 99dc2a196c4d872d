"""DirectML on one Direct3D 12 device: its operators, each compiled once."""

from __future__ import annotations

import ctypes

from crossinfer.backends.d3d12.com import ComError
from crossinfer.backends.d3d12.directml import structures as dml
from crossinfer.backends.d3d12.directml.constants import (
    FEATURE_TENSOR_DATA_TYPE_SUPPORT,
    ExecutionFlags,
)
from crossinfer.backends.d3d12.directml.descriptions import Description, name_of
from crossinfer.backends.d3d12.directml.interfaces import IDMLCommandRecorder
from crossinfer.backends.d3d12.directml.library import Library
from crossinfer.backends.d3d12.directml.operator import DmlOperator, Host
from crossinfer.backends.d3d12.directml.tensors import DATA_TYPES
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import KernelUnsupported
from crossinfer.hal.kernel import Kernel


class Session:
    """The operators of one device, by description. Used by one thread at a time."""

    def __init__(self, host: Host, library: Library, *, debug: bool = False) -> None:
        """Raises ComError if DirectML does not take the device."""
        self._host = host
        self._device = library.create_device(host.device, debug=debug)
        self._recorder = self._device.create("CreateCommandRecorder", IDMLCommandRecorder)
        self._kernels: dict[Description, Kernel | KernelUnsupported] = {}
        self._types = frozenset(dtype for dtype in DATA_TYPES if self._supports(dtype))

    def supports(self, dtype: DType) -> bool:
        """Whether the device computes with tensors of this type."""
        return dtype in self._types

    def kernel(self, description: Description) -> Kernel:
        """The kernel of an operator, the same one each time; its handle is a DmlOperator.

        Raises KernelUnsupported if DirectML or the driver cannot compile it.
        """
        found = self._kernels.get(description)
        if found is None:
            found = self._kernels[description] = self._compile(description)
        if isinstance(found, KernelUnsupported):
            raise found
        return found

    def operator(self, description: Description) -> DmlOperator:
        """The operator behind `kernel`. Raises KernelUnsupported."""
        handle = self.kernel(description).handle
        assert isinstance(handle, DmlOperator)
        return handle

    def close(self) -> None:
        """Release the operators and DirectML. Nothing that was recorded may be in flight."""
        for kernel in self._kernels.values():
            if isinstance(kernel, Kernel) and isinstance(kernel.handle, DmlOperator):
                kernel.handle.release()
        self._kernels.clear()
        self._recorder.release()
        self._device.release()

    def _compile(self, description: Description) -> Kernel | KernelUnsupported:
        name = name_of(description)
        # Meta commands stay allowed: they are what DirectML can do better than our kernels. Sums in
        # half precision stay forbidden.
        try:
            operator = DmlOperator(
                self._host, self._device, self._recorder, description, ExecutionFlags.NONE
            )
        except ComError as error:
            return KernelUnsupported(f"{name} {description.shape} cannot be compiled: {error}.")
        return Kernel(name, operator, per_shape=True)

    def _supports(self, dtype: DType) -> bool:
        query = dml.DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(DataType=DATA_TYPES[dtype])
        answer = dml.DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT()
        try:
            self._device.CheckFeatureSupport(
                FEATURE_TENSOR_DATA_TYPE_SUPPORT,
                ctypes.sizeof(query),
                ctypes.byref(query),
                ctypes.sizeof(answer),
                ctypes.byref(answer),
            )
        except ComError:
            return False
        return bool(answer.IsSupported)
