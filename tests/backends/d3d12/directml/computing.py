"""A DirectML that computes: its dispatches are kernels of our own on a real Direct3D 12 device."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.backends.d3d12.directml.fake_descriptions import SeenOperator, SeenTensor
from tests.backends.d3d12.directml.fake_directml import Behaviour, Bindings, Bound, FakeDirectML
from tests.backends.d3d12.directml.layouts import constant
from tests.d3d12_driver import open_d3d12_or_skip

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.commands import CommandList, CommandMemory
from crossinfer.backends.d3d12.descriptors import DescriptorLoan
from crossinfer.backends.d3d12.directml import attach
from crossinfer.backends.d3d12.directml.interfaces import IDMLOperatorInitializer
from crossinfer.backends.d3d12.interfaces import (
    ID3D12Device,
    ID3D12GraphicsCommandList,
    ID3D12PipelineState,
    ID3D12Resource,
    ID3D12RootSignature,
)
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.pipelines import root_signature
from crossinfer.backends.d3d12.structures import D3D12_COMPUTE_PIPELINE_STATE_DESC
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.fetch_dxc import library_path
from crossinfer.kernels.shader import ShaderKernel, Target

_SHADER = Path(__file__).parent / "operators.hlsl"
_VIEWS = 4
_KINDS = {
    constant("OPERATOR_GEMM"): 0,
    constant("OPERATOR_ELEMENT_WISE_ADD"): 1,
    constant("OPERATOR_ELEMENT_WISE_MULTIPLY"): 2,
    constant("OPERATOR_ACTIVATION_SOFTMAX"): 3,
    constant("OPERATOR_CAST"): 4,
}
_ACTIVATIONS = {
    None: 0,
    constant("OPERATOR_ACTIVATION_RELU"): 1,
    constant("OPERATOR_ACTIVATION_SIGMOID"): 2,
    constant("OPERATOR_ACTIVATION_TANH"): 3,
}
_HALF = constant("TENSOR_DATA_TYPE_FLOAT16")


class ComputingPlatform:
    """Records `operators.hlsl` into the lists of a device of libvkd3d or Windows.

    `owner` learns of every operator that is recorded.
    """

    def __init__(self, api: Direct3D, address: int, owner: ComputingDirectML) -> None:
        device = self._device = ComObject.adopt(address, ID3D12Device, api.abi)
        self._owner = owner
        words = struct.calcsize(_CONSTANTS) // 4
        blob = api.serialize_root_signature(root_signature(0, _VIEWS, words))
        self._signature = device.create(
            "CreateRootSignature", ID3D12RootSignature, 0, blob, len(blob)
        )
        kernel = ShaderKernel("operators", _SHADER.name, 0, _VIEWS, 4 * words, _THREADS)
        code = Compiler(library_path()).compile(kernel, _SHADER.read_text(), Target.DXIL)
        held = ctypes.create_string_buffer(code, len(code))
        description = D3D12_COMPUTE_PIPELINE_STATE_DESC(
            pRootSignature=self._signature.address,
            pShaderBytecode=ctypes.addressof(held),
            BytecodeLength=len(code),
        )
        self._pipeline = device.create(
            "CreateComputePipelineState", ID3D12PipelineState, ctypes.byref(description)
        )

    def close(self) -> None:
        for made in (self._pipeline, self._signature, self._device):
            made.release()

    def check_range(self, cpu: int, gpu: int, count: int) -> None:
        assert cpu, "there is no descriptor heap"
        assert gpu, "the descriptor heap is not one that shaders see"
        assert count > 0

    def check_memory(self, bound: Bound) -> None:
        assert bound.resource

    def dispatch(self, commands: int, dispatchable: FakeObject, table: FakeObject) -> None:
        assert commands in self._owner.with_heap, "no descriptor heap is set on the list"
        if dispatchable.interface is IDMLOperatorInitializer:
            for operator in dispatchable.facts["operators"]:
                operator.facts["initialised"] = True
            return
        seen: SeenOperator = dispatchable.facts["seen"]
        bindings: Bindings = table.facts["bindings"]
        assert bindings.inputs is not None
        assert bindings.outputs is not None
        self._owner.dispatched.append((commands, seen))
        views = [*bindings.inputs, *[None] * (_VIEWS - 1 - len(bindings.inputs))]
        recorded = ComObject.adopt(commands, ID3D12GraphicsCommandList, self._device.abi)
        recorded.SetComputeRootSignature(self._signature)
        recorded.SetPipelineState(self._pipeline)
        constants, groups = _constants(seen)
        recorded.SetComputeRoot32BitConstants(0, len(constants) // 4, constants, 0)
        (output,) = bindings.outputs
        for number, bound in enumerate([*views, output]):
            address = self._address(output if bound is None else bound)
            recorded.SetComputeRootUnorderedAccessView(1 + number, address)
        recorded.Dispatch(groups, 1, 1)
        recorded.release()

    def _address(self, bound: Bound | None) -> int:
        assert bound is not None
        resource = ComObject.adopt(bound.resource, ID3D12Resource, self._device.abi)
        address: int = resource.GetGPUVirtualAddress() + bound.offset
        resource.release()
        return address


_CONSTANTS = "<12I"
_THREADS = 64


def _constants(seen: SeenOperator) -> tuple[bytes, int]:
    """(constants of the shader, groups)"""
    a, b, c, *_ = [*seen.inputs, None, None]
    assert a is not None
    rows, columns = seen.output.sizes[2:]
    assert seen.output.strides[2:] == (columns, 1), "the shader writes dense tensors"
    inner = a.sizes[2] if seen.transposed[0] else a.sizes[3]
    halves = sum(
        1 << bit
        for bit, tensor in enumerate((a, b, c, seen.output))
        if tensor is not None and tensor.data_type == _HALF
    )
    values = (
        *(_KINDS[seen.kind], rows, columns, inner),
        *(_strides(a, seen.transposed[0]) + _strides(b, seen.transposed[1])),
        *(0 if c is None else c.strides[2], c is not None, _ACTIVATIONS[seen.activation], halves),
    )
    words = -(-rows * columns // 2) if halves & 8 else rows * columns
    return struct.pack(_CONSTANTS, *values), -(-words // _THREADS)


def _strides(tensor: SeenTensor | None, transposed: bool) -> tuple[int, int]:
    """Between rows and between columns of what the product sees."""
    if tensor is None:
        return (0, 0)
    strides = tensor.strides[2], tensor.strides[3]
    return strides[::-1] if transposed else strides


class ComputingDirectML(FakeDirectML):
    """The library over the devices of an API.

    `dispatched` are the operators that were recorded so far, each with the address of its list;
    `with_heap` are the lists that have a descriptor heap (`install_directml` watches them).
    """

    def __init__(self, api: Direct3D, **behaviour: Any) -> None:
        self.dispatched: list[tuple[int, SeenOperator]] = []
        self.with_heap: set[int] = set()
        super().__init__(
            World(),
            lambda device: ComputingPlatform(api, device, self),
            Behaviour(**behaviour),
        )


def install_directml(monkeypatch: pytest.MonkeyPatch) -> ComputingDirectML:
    """A DirectML that devices find as if it were installed, and that comes first."""
    open_d3d12_or_skip().close()  # another one stays open, so that kernels are compiled once
    api = direct3d()
    assert api is not None
    made = ComputingDirectML(api)
    begin, set_on = CommandMemory.begin, DescriptorLoan.set_on

    def begin_without_heap(memory: CommandMemory) -> CommandList:
        commands = begin(memory)
        made.with_heap.discard(commands.list.address)
        return commands

    def set_heap_on(loan: DescriptorLoan, commands: ComObject) -> None:
        set_on(loan, commands)
        made.with_heap.add(commands.address)

    monkeypatch.setattr(CommandMemory, "begin", begin_without_heap)
    monkeypatch.setattr(DescriptorLoan, "set_on", set_heap_on)
    monkeypatch.setattr(attach, "find_library", lambda _: made.library)
    monkeypatch.setenv("CROSSINFER_DIRECTML", "on")
    return made
