"""Root signatures and pipelines: one for each shader, made when it is first used.

A root signature holds the constants themselves, then the address of each view: SRVs t0 …, UAVs
u0 …. There are no descriptor tables and no heaps, so a recording needs nothing beside its lists.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import ParameterType
from crossinfer.backends.d3d12.interfaces import ID3D12PipelineState, ID3D12RootSignature
from crossinfer.backends.d3d12.libraries import Direct3D
from crossinfer.backends.d3d12.pipeline_cache import PipelineCache
from crossinfer.backends.d3d12.structures import (
    D3D12_COMPUTE_PIPELINE_STATE_DESC,
    D3D12_ROOT_PARAMETER,
    D3D12_ROOT_SIGNATURE_DESC,
)
from crossinfer.hal.kernel import Kernel
from crossinfer.kernels.binary import entry_name, shader_binary
from crossinfer.kernels.shader import ShaderKernel, Target


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A pipeline, with what recording it needs."""

    state: ComObject
    root_signature: ComObject
    reads: int


class Pipelines:
    """The kernels and pipelines of one device. Thread-safe."""

    def __init__(self, api: Direct3D, device: ComObject, identity: str) -> None:
        """`identity` names device and driver, whose compiled code is kept on disk."""
        self._api = api
        self._device = device
        self._cache = PipelineCache(identity)
        self._lock = threading.RLock()
        self._kernels: dict[ShaderKernel, Kernel] = {}
        self._pipelines: dict[ShaderKernel, Pipeline] = {}
        self._signatures: dict[tuple[int, int, int], ComObject] = {}

    def kernel(self, shader: ShaderKernel) -> Kernel:
        """The HAL's kernel of a shader; costs nothing until it is used."""
        with self._lock:
            return self._kernels.setdefault(shader, Kernel(shader.name, shader))

    def pipeline(self, shader: ShaderKernel) -> Pipeline:
        """Raises ComError, and KernelUnsupported if there is no code."""
        with self._lock:
            found = self._pipelines.get(shader)
            if found is None:
                found = self._pipelines[shader] = self._create(shader)
            return found

    def _create(self, shader: ShaderKernel) -> Pipeline:
        signature = self._signature(shader.reads, shader.writes, -(-shader.constant_bytes // 4))
        code = shader_binary(shader, Target.DXIL)
        name = entry_name(shader, Target.DXIL)
        kept = self._cache.find(name)
        if kept is not None:
            try:
                return Pipeline(self._compile(signature, code, kept), signature, shader.reads)
            except ComError:
                pass  # of another driver, or one that takes back none: compile it again
        state = self._compile(signature, code, b"")
        self._cache.keep(name, state)
        return Pipeline(state, signature, shader.reads)

    def _compile(self, signature: ComObject, code: bytes, kept: bytes) -> ComObject:
        description = D3D12_COMPUTE_PIPELINE_STATE_DESC(
            pRootSignature=signature.address,
            pShaderBytecode=_address(code),
            BytecodeLength=len(code),
            pCachedBlob=_address(kept) if kept else None,
            CachedBlobSizeInBytes=len(kept),
        )
        return self._device.create(
            "CreateComputePipelineState", ID3D12PipelineState, ctypes.byref(description)
        )

    def _signature(self, reads: int, writes: int, words: int) -> ComObject:
        """Shaders of the same sizes share it."""
        key = (reads, writes, words)
        if key not in self._signatures:
            description = root_signature(*key)
            blob = self._api.serialize_root_signature(description)
            self._signatures[key] = self._device.create(
                "CreateRootSignature", ID3D12RootSignature, 0, blob, len(blob)
            )
        return self._signatures[key]


def root_signature(reads: int, writes: int, words: int) -> D3D12_ROOT_SIGNATURE_DESC:
    """Parameter 0 are the constants of b0, if there are any; then t0 …, then u0 …."""
    constants = [(ParameterType.CONSTANTS, 0)] if words else []
    views = [(ParameterType.SRV, n) for n in range(reads)]
    views += [(ParameterType.UAV, n) for n in range(writes)]
    parameters = [
        D3D12_ROOT_PARAMETER(
            ParameterType=kind,
            ShaderRegister=register,
            Num32BitValues=words if kind is ParameterType.CONSTANTS else 0,
        )
        for kind, register in constants + views
    ]
    array = (D3D12_ROOT_PARAMETER * len(parameters))(*parameters)
    made = D3D12_ROOT_SIGNATURE_DESC(
        NumParameters=len(parameters), pParameters=ctypes.addressof(array)
    )
    made.parameters = array  # so that it lives as long
    return made


def _address(data: bytes) -> int | None:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
