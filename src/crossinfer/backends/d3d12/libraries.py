"""The libraries that Direct3D 12 comes in, and the few functions that are not methods.

On Windows these are the system's. Elsewhere it is libvkd3d (or vkd3d-proton's native build), which
puts Direct3D 12 over Vulkan; the settings `d3d12_library` and `d3d12_abi` name another one.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import platform
import sys
from typing import Any

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import (
    ComError,
    ComObject,
    Interface,
    References,
    Signature,
    checked,
    taken,
)
from crossinfer.backends.d3d12.constants import ROOT_SIGNATURE_1_0, FeatureLevel
from crossinfer.backends.d3d12.interfaces import ID3D12Device, ID3DBlob
from crossinfer.backends.d3d12.structures import D3D12_ROOT_SIGNATURE_DESC
from crossinfer.core.settings import read_settings

_VKD3D_ABI = Abi.MS if platform.machine() in ("x86_64", "AMD64") else Abi.SYSV
_CANDIDATES = (
    (("d3d12.dll", Abi.WINDOWS),)
    if sys.platform == "win32"
    else (("libvkd3d-utils.so.1", _VKD3D_ABI), ("libvkd3d-proton-d3d12.so.0", Abi.SYSV))
)
LEAST_VKD3D = (2, 0)
"""libvkd3d before it takes no DXIL."""


@dataclasses.dataclass(frozen=True)
class Library:
    """A library that offers COM objects, with its calling convention."""

    name: str
    handle: Any
    abi: Abi

    def function(self, name: str, letters: str) -> Any:
        """An exported function that returns an HRESULT; failures are raised as ComError.

        Raises AttributeError if the library lacks it.
        """
        address = ctypes.cast(getattr(self.handle, name), ctypes.c_void_p).value
        assert address is not None
        signature = Signature(letters)
        made = self.abi.function(address, signature.returned, signature.arguments)
        return checked(name, made)

    def get(self, name: str, interface: Interface, *arguments: int) -> ComObject:
        """Calls a function that ends in (id, pointer to the object). Raises ComError."""
        made = ctypes.c_void_p()
        function = self.function(name, "u " * len(arguments) + "p p")
        function(*arguments, interface.iid, ctypes.byref(made))
        return ComObject(taken(made), interface, self.abi)


class Direct3D:
    """The functions of Direct3D 12."""

    def __init__(self, library: Library) -> None:
        """Raises AttributeError if the library is not one of Direct3D 12."""
        self.library = library
        self.abi = library.abi
        self._create = library.function("D3D12CreateDevice", "p u p p")
        self._serialize = library.function("D3D12SerializeRootSignature", "p u p p")

    def create_device(self, adapter: ComObject | None, level: FeatureLevel) -> ComObject:
        """The device of an adapter, the default one's for None. Raises ComError."""
        made = ctypes.c_void_p()
        self._create(adapter, level, ID3D12Device.iid, ctypes.byref(made))
        return ComObject(taken(made), ID3D12Device, self.abi, References())

    def supports(self, adapter: ComObject, level: FeatureLevel) -> bool:
        """Whether `create_device` would succeed; nothing is made."""
        try:
            self._create(adapter, level, ID3D12Device.iid, None)
        except ComError:
            return False
        return True

    def serialize_root_signature(self, description: D3D12_ROOT_SIGNATURE_DESC) -> bytes:
        """The blob that `CreateRootSignature` takes. Raises ComError."""
        blob, message = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self._serialize(
                ctypes.byref(description),
                ROOT_SIGNATURE_1_0,
                ctypes.byref(blob),
                ctypes.byref(message),
            )
        finally:
            if message.value is not None:
                ComObject(message.value, ID3DBlob, self.abi).release()
        return blob_bytes(ComObject(taken(blob), ID3DBlob, self.abi))

    def debug_interface(self, interface: Interface) -> ComObject | None:
        """An interface for debugging; None if this system has none (it may be to be installed)."""
        try:
            return self.library.get("D3D12GetDebugInterface", interface)
        except (ComError, AttributeError):
            return None


def blob_bytes(blob: ComObject) -> bytes:
    """The bytes of an ID3DBlob, which is released."""
    data = ctypes.string_at(blob.GetBufferPointer(), blob.GetBufferSize())
    blob.release()
    return data


def load(name: str, abi: Abi) -> Library | None:
    """The library of that name; None where it is not."""
    try:
        return Library(name, ctypes.CDLL(name), abi)
    except OSError:
        return None


def direct3d() -> Direct3D | None:
    """Direct3D 12 as the settings ask for it; None where it cannot be had. Raises SettingsError."""
    settings = read_settings()
    return _load(settings.d3d12_library, settings.d3d12_abi)


@functools.cache
def _load(name: str | None, abi: str | None) -> Direct3D | None:
    candidates = _CANDIDATES if name is None else ((name, _CANDIDATES[0][1]),)
    for candidate, usual_abi in candidates:
        library = load(candidate, usual_abi if abi is None else Abi(abi))
        if library is None or (vkd3d_version(library) or LEAST_VKD3D) < LEAST_VKD3D:
            continue
        try:
            return Direct3D(library)
        except AttributeError:
            continue
    return None


def vkd3d_version(library: Library) -> tuple[int, int] | None:
    """The release of libvkd3d that the library belongs to; None if it is something else.

    The function is found through the library, among those that it needs.
    """
    try:
        get = library.handle.vkd3d_shader_get_version
    except AttributeError:
        return None
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    get.restype = ctypes.c_char_p
    get(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value
