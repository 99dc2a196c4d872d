"""Finding DirectML: the library that the setting names, the one of a wheel, the system's."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject, checked, taken
from crossinfer.backends.d3d12.directml.constants import FEATURE_LEVEL_2_0, CreateDeviceFlags
from crossinfer.backends.d3d12.directml.interfaces import IDMLDevice
from crossinfer.core.settings import read_settings

_WHEEL, _IN_WHEEL = "onnxruntime", Path("capi", "DirectML.dll")
"""The newest DirectML.dll that PyPI has is inside the wheel onnxruntime-directml."""


class Library:
    """A DirectML library; its objects follow the calling convention `abi`."""

    def __init__(self, create_device: int, abi: Abi) -> None:
        """`create_device` is the address of DMLCreateDevice1."""
        pointer, number = ctypes.c_void_p, ctypes.c_uint32
        self.abi = abi
        self._create = checked(
            "DMLCreateDevice1",
            abi.function(
                create_device, ctypes.c_int32, (pointer, number, number, pointer, pointer)
            ),
        )

    def create_device(self, device: ComObject, *, debug: bool = False) -> ComObject:
        """The IDMLDevice over an ID3D12Device. Raises ComError.

        `debug` has DirectML explain bad bindings to the debug layer, which must be on.
        """
        flags = CreateDeviceFlags.DEBUG if debug else CreateDeviceFlags.NONE
        made = ctypes.c_void_p()
        self._create(device, flags, FEATURE_LEVEL_2_0, IDMLDevice.iid, ctypes.byref(made))
        return ComObject(taken(made), IDMLDevice, self.abi, device.references)


def find_library(abi: Abi) -> Library | None:
    """DirectML for a device whose objects follow `abi`; None where there is none."""
    for name in _candidates():
        try:
            function: Any = ctypes.CDLL(name).DMLCreateDevice1
        except (OSError, AttributeError):  # not there, or older than feature level 2.0
            continue
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return Library(address, abi)
    return None


def _candidates() -> Iterator[str]:
    named = read_settings().directml_library
    if named is not None:
        yield named
    elif sys.platform == "win32":
        wheel = importlib.util.find_spec(_WHEEL)
        for folder in (wheel.submodule_search_locations or ()) if wheel else ():
            yield str(Path(folder) / _IN_WHEEL)
        yield "DirectML.dll"
