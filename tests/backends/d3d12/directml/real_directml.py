"""The real DirectML on Linux: the library of the wheel torch-directml over libvkd3d.

    scripts/d3d12-run .venv/bin/python -m tests.backends.d3d12.directml.real_directml

Fetches the wheel (25 MB, once), has every operator created and compiled in both types, runs those
that compile, and prints what came of each. It needs a C compiler. The device is said to have 16-bit
operations, or DirectML would describe no tensors of f16 at all.
"""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from tests.backends.d3d12.directml.real_dxcore import DxCore
from tests.backends.d3d12.directml.real_faces import (
    DEVICE,
    LIST,
    OTHER,
    RESOURCE,
    Faces,
    call_function,
)

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject, taken
from crossinfer.backends.d3d12.constants import FeatureLevel, Heap
from crossinfer.backends.d3d12.descriptors import DescriptorPool
from crossinfer.backends.d3d12.directml.constants import FEATURE_LEVEL_2_0
from crossinfer.backends.d3d12.directml.descriptions import Cast, Description, name_of
from crossinfer.backends.d3d12.directml.interfaces import IDMLDevice
from crossinfer.backends.d3d12.directml.library import Library
from crossinfer.backends.d3d12.directml.samples import sample_operators
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.directml.tensors import DATA_TYPES, Tensor, dense
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.memory import Allocation, create_buffer
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.operators import Place
from crossinfer.backends.d3d12.transfers import Transfers
from crossinfer.core.cache import cache_folder
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import KernelUnsupported
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.hooks import raw_bytes

WHEEL = "torch-directml==0.2.5.dev240914"
_STUBS = Path(__file__).parent / "real_stubs.c"
_LIBRARY = "libdirectml.so"
_NUMPY = {DType.F32: np.float32, DType.F16: np.float16}


class FetchError(Exception):
    """The wheel or the stand-ins cannot be had here."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`error` is None if the operator does not compile, which `why` then tells."""

    label: str
    description: Description
    error: float | None
    why: str = ""

    def __str__(self) -> str:
        result = self.why if self.error is None else f"error {self.error:.2g}"
        return f"{name_of(self.description):24} {self.label:20} {result}"


class RealDirectML:
    """A session of the real DirectML on a device of libvkd3d. Raises FetchError."""

    def __init__(self) -> None:
        api = direct3d()
        if api is None or api.abi is not Abi.MS:
            raise FetchError("There is no libvkd3d here; start this by scripts/d3d12-run.")
        folder = library_folder()
        self.faces = Faces(claims_half=True)
        self._dxcore = DxCore()
        self._serialize = _serializer(api, self.faces)
        for name in ("libd3d12.so", "libdxcore.so"):
            stub = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
            stub.set_functions(self._serialize, self._dxcore.create_factory)
        device = api.create_device(None, FeatureLevel.LEVEL_11_0)
        self.native = NativeDevice.create(api, device)
        self.transfers = Transfers(self.native, lambda: 60.0)
        self.descriptors = DescriptorPool(self.native.device)
        create = ctypes.CDLL(str(folder / _LIBRARY)).DMLCreateDevice1
        address = ctypes.cast(create, ctypes.c_void_p).value
        assert address is not None
        self.session = Session(self, _RealLibrary(address, Abi.SYSV, self.faces))

    # The Host of operators.

    @property
    def device(self) -> ComObject:
        return self.native.device

    def make_buffer(self, size: int) -> ComObject:
        return self.faces.com(self.memory(size).resource, RESOURCE)

    def run(self, record: Callable[[ComObject], None]) -> None:
        self.transfers.run_once(lambda commands: record(self.faces.com(commands.list, LIST)))

    def memory(self, size: int) -> Allocation:
        return create_buffer(self.native.device, Heap.DEFAULT, size)

    def outcomes(self, m: int = 5, k: int = 64, n: int = 32) -> Iterator[Outcome]:
        """Every operator in both types, and a copy."""
        rng = np.random.default_rng()
        for dtype in DATA_TYPES:
            samples = sample_operators(dtype, m, k, n)
            same = dense(dtype, (m, n))
            for label, description in {**samples, "copy": Cast(same, same)}.items():
                try:
                    error = self.error_of(description, rng)
                except KernelUnsupported as failure:
                    yield Outcome(label, description, None, str(failure))
                else:
                    yield Outcome(label, description, error)

    def error_of(self, description: Description, rng: np.random.Generator) -> float:
        """The row_error of a run. Raises KernelUnsupported."""
        operator = self.session.operator(description)
        operator.prepare()
        tensors = [*(t for t in description.inputs if t is not None), description.output]
        memory = [self.memory(tensor.size_in_bytes) for tensor in tensors]
        inputs = []
        for tensor, target in zip(tensors[:-1], memory, strict=False):
            count = tensor.size_in_bytes // tensor.dtype.block_bytes
            values = rng.standard_normal(count).astype(_NUMPY[tensor.dtype])
            self.transfers.write(target, 0, raw_bytes(values))
            inputs.append(_elements(values, tensor))
        if operator.temporary_bytes:
            memory.append(self.memory(operator.temporary_bytes))
        places = [Place(self.faces.com(m.resource, RESOURCE), 0, m.size) for m in memory]
        loan = self.descriptors.lend(operator.descriptors)

        def record(commands: ComObject) -> None:
            loan.set_on(commands)
            operator.record(commands, places, loan.take(operator.descriptors))

        self.run(record)
        output = description.output
        raw = self.transfers.read(memory[len(tensors) - 1], 0, output.size_in_bytes)
        for used in memory:
            self.transfers.forget(used)
        result = np.frombuffer(raw, _NUMPY[output.dtype])
        return row_error(_elements(result, output), description.compute(inputs))


class _RealLibrary(Library):
    def __init__(self, create_device: int, abi: Abi, faces: Faces) -> None:
        super().__init__(create_device, abi)
        self._faces = faces

    def create_device(self, device: ComObject, *, debug: bool = False) -> ComObject:
        del debug
        made = ctypes.c_void_p()
        face = ctypes.c_void_p(self._faces.face(device.address, DEVICE))
        self._create(face, 0, FEATURE_LEVEL_2_0, IDMLDevice.iid, ctypes.byref(made))
        return ComObject(taken(made), IDMLDevice, self.abi)


def _serializer(api: Direct3D, faces: Faces) -> object:
    """D3D12SerializeVersionedRootSignature, whose blobs get faces."""
    function = api.library.handle.D3D12SerializeVersionedRootSignature
    target = ctypes.cast(function, ctypes.c_void_p).value
    assert target is not None

    def serialize(description: int, blob: int, messages: int | None) -> int:
        code = call_function(target, description, blob, messages or 0)
        for place in (blob, messages):
            faces.give(place or 0, OTHER)
        return code & 0xFFFFFFFF

    return ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        serialize
    )


def library_folder() -> Path:
    """The folder of libdirectml.so and stand-ins for what it is linked with. Raises FetchError."""
    folder = cache_folder("directml") / WHEEL.replace("==", "-")
    if not (folder / _LIBRARY).exists():
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", "--python-version=3.10", "--dest", scratch]
            command += ["--platform=manylinux2010_x86_64", WHEEL]
            _run(command)
            (wheel,) = Path(scratch).glob("*.whl")
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("libd3d12.so", "libdxcore.so"):
                _compile_stub(folder / name, Path(scratch))
            library = zipfile.ZipFile(wheel).read(f"torch_directml/{_LIBRARY}")
            (folder / _LIBRARY).write_bytes(library)
    return folder


def _compile_stub(target: Path, scratch: Path) -> None:
    versions = scratch / "versions"
    versions.write_text("VER_1 { global: *; };\n")
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(_STUBS)]
    command += ["-o", str(target), f"-Wl,-soname,{target.name}"]
    _run([*command, f"-Wl,--version-script={versions}"])


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise FetchError(f"{command[0]} is not installed.") from None
    except subprocess.CalledProcessError as error:
        raise FetchError(f"{command[0]} failed: {error.stderr.strip()[-500:]}") from None


def _elements(values: Array, tensor: Tensor) -> Array:
    starts = np.arange(tensor.rows)[:, None] * tensor.row_stride
    elements: Array = values[starts + np.arange(tensor.columns)]
    return elements


def main() -> int:
    """Prints the table."""
    try:
        real = RealDirectML()
    except FetchError as error:
        print(error)
        return 2
    for outcome in real.outcomes():
        print(outcome)
    for problem in real.faces.problems:
        print(f"not handed on: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
