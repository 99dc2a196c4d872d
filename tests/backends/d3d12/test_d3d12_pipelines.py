"""Root signatures, and compiled pipelines on disk; over a fake driver that has a cache."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.backends.d3d12.directml.fake_com import FakeObject, World

from crossinfer.backends.d3d12 import pipelines
from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.interfaces import (
    ID3D12Device,
    ID3D12PipelineState,
    ID3D12RootSignature,
    ID3DBlob,
)
from crossinfer.backends.d3d12.pipelines import Pipelines, root_signature
from crossinfer.backends.d3d12.structures import (
    D3D12_COMPUTE_PIPELINE_STATE_DESC,
    D3D12_ROOT_PARAMETER,
)
from crossinfer.hal.kernel import MAX_BINDINGS, MAX_CONSTANT_BYTES
from crossinfer.kernels import row_ops

NATIVE = Abi.WINDOWS if sys.platform == "win32" else Abi.SYSV
MISMATCH = -0x7781FFFE
"""D3D12_ERROR_DRIVER_VERSION_MISMATCH"""
SHADER = next(iter(row_ops.shaders()))


class CachingDriver:
    """A device whose pipelines give away a blob, and take back those of its own version."""

    def __init__(self, version: bytes) -> None:
        self.world = World()
        self.compiled: list[str] = []
        self._version = version
        fake = FakeObject(
            self.world,
            ID3D12Device,
            {
                "CreateRootSignature": self._signature,
                "CreateComputePipelineState": self._pipeline,
            },
        )
        self._device = ComObject(fake.address, ID3D12Device, NATIVE)

    def pipelines(self, identity: str = "card") -> Pipelines:
        return Pipelines(self, self._device, identity)  # type: ignore[arg-type]

    def serialize_root_signature(self, _description: object) -> bytes:
        return b"signature"

    def _signature(self, _mask: int, blob: int, size: int, _iid: int, place: int) -> int:
        assert ctypes.string_at(blob, size) == b"signature"
        return FakeObject(self.world, ID3D12RootSignature, {}).give(place)

    def _pipeline(self, desc: int, _iid: int, place: int) -> int:
        given = D3D12_COMPUTE_PIPELINE_STATE_DESC.from_address(desc)
        assert ctypes.string_at(given.pShaderBytecode, 4) == b"DXBC"
        if given.CachedBlobSizeInBytes:
            kept = ctypes.string_at(given.pCachedBlob, given.CachedBlobSizeInBytes)
            if kept != self._version:
                return MISMATCH
            self.compiled.append("from the cache")
        else:
            self.compiled.append("anew")
        return FakeObject(self.world, ID3D12PipelineState, {"GetCachedBlob": self._blob}).give(
            place
        )

    def _blob(self, place: int) -> int:
        memory = ctypes.create_string_buffer(self._version, len(self._version))
        methods: dict[str, Any] = {
            "GetBufferPointer": lambda: ctypes.addressof(memory),
            "GetBufferSize": lambda: len(self._version),
        }
        return FakeObject(self.world, ID3DBlob, methods).give(place)


@pytest.fixture
def cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty but for the shader, which the fake driver does not look at."""
    monkeypatch.setattr(pipelines, "shader_binary", lambda _shader, _target: b"DXBC and more")
    return empty_cache


@pytest.mark.usefixtures("cache")
def test_a_pipeline_is_compiled_once_for_a_driver() -> None:
    driver = CachingDriver(b"version 1")
    first = driver.pipelines()
    assert first.pipeline(SHADER) is first.pipeline(SHADER)
    driver.pipelines().pipeline(SHADER)
    driver.pipelines("another card").pipeline(SHADER)
    assert driver.compiled == ["anew", "from the cache", "anew"]
    assert [
        blob.references for blob in driver.world.objects.values() if blob.interface is ID3DBlob
    ] == [0, 0]
    assert driver.world.complaints == []


@pytest.mark.usefixtures("cache")
def test_what_another_driver_kept_is_compiled_again_and_replaced() -> None:
    CachingDriver(b"version 1").pipelines().pipeline(SHADER)
    later = CachingDriver(b"version 2")
    later.pipelines().pipeline(SHADER)
    later.pipelines().pipeline(SHADER)
    assert later.compiled == ["anew", "from the cache"]


def test_a_damaged_entry_is_none(cache: Path) -> None:
    driver = CachingDriver(b"version 1")
    driver.pipelines().pipeline(SHADER)
    (entry,) = (path for path in cache.rglob("d3d12/*/*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    driver.pipelines().pipeline(SHADER)
    assert driver.compiled == ["anew", "anew"]


@pytest.mark.parametrize("words", [0, 3, MAX_CONSTANT_BYTES // 4])
def test_a_root_signature_has_constants_then_reads_then_writes(words: int) -> None:
    made = root_signature(2, MAX_BINDINGS - 2, words)
    parameters = (D3D12_ROOT_PARAMETER * made.NumParameters).from_address(made.pParameters)
    kinds = [(p.ParameterType, p.ShaderRegister) for p in parameters]
    views = [(3, 0), (3, 1), *((4, n) for n in range(MAX_BINDINGS - 2))]
    assert kinds == ([(1, 0)] if words else []) + views
    assert sum(p.Num32BitValues for p in parameters) == words
    assert words + 2 * MAX_BINDINGS <= 64  # the most that Direct3D 12 allows
