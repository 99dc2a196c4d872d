"""One operator run on a device, and its result beside the float64 meaning."""

from __future__ import annotations

import dataclasses

import numpy as np

from crossinfer.backends.d3d12.directml.descriptions import Description, Gemm
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.directml.tensors import Tensor
from crossinfer.core.dtypes import Array, DType
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Access, Binding, View
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.kernel import Dispatch

_NUMPY = {DType.F32: np.float32, DType.F16: np.float16}
_POISON = 0xFF
"""Bytes of NaN in both types."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """The largest `row_error` of a result, and the limit of its class."""

    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit


def try_operator(
    device: Device, session: Session, description: Description, rng: np.random.Generator
) -> Trial:
    """Run it on fresh random inputs; output and temporary memory hold NaN before.

    `session` is one of `device`. Raises KernelUnsupported if it does not compile, and the device's
    errors.
    """
    kernel = session.kernel(description)
    temporary_bytes = session.operator(description).temporary_bytes
    tensors = [tensor for tensor in description.inputs if tensor is not None]
    raw = [_random(rng, tensor, description) for tensor in tensors]
    inputs = [_elements(values, tensor) for values, tensor in zip(raw, tensors, strict=True)]
    output = description.output
    views: list[View] = []
    try:
        views += [_upload(device, values) for values in raw]
        views.append(_upload(device, np.full(output.size_in_bytes, _POISON, np.uint8)))
        bindings = [Binding(view, Access.READ) for view in views[:-1]]
        bindings.append(Binding(views[-1], Access.WRITE))
        if temporary_bytes:
            views.append(_upload(device, np.full(temporary_bytes, _POISON, np.uint8)))
            bindings.append(Binding(views[-1], Access.READ_WRITE))
        executor = Executor(device)
        executor.dispatch(Dispatch(kernel, tuple(bindings), shape=description.shape))
        executor.submit_and_wait()
        result = device.download(bindings[len(tensors)].view)
    finally:
        for view in views:
            view.buffer.free()
    values = np.frombuffer(result[: output.size_in_bytes], _NUMPY[output.dtype])
    limit = Tolerance.F32 if output.dtype is DType.F32 else Tolerance.HALF
    error = row_error(_elements(values, output), description.compute(inputs))
    return Trial(error, limit.value)


def _random(rng: np.random.Generator, tensor: Tensor, description: Description) -> Array:
    """Every element of the memory, gaps too; a product of them is about 1."""
    dtype = _NUMPY[tensor.dtype]
    values = rng.standard_normal(tensor.size_in_bytes // np.dtype(dtype).itemsize)
    if isinstance(description, Gemm) and tensor == description.b:
        values /= np.sqrt(description.inner)
    return values.astype(dtype)


def _elements(values: Array, tensor: Tensor) -> Array:
    """[rows, columns] of what memory holds."""
    starts = np.arange(tensor.rows)[:, None] * tensor.row_stride
    elements: Array = values[starts + np.arange(tensor.columns)]
    return elements


def _upload(device: Device, values: Array) -> View:
    words = values.view(np.uint8)
    padded = np.pad(words, (0, -len(words) % DType.I32.block_bytes))
    shape = (len(padded) // DType.I32.block_bytes,)
    return device.upload(padded, shape, DType.I32).view()
