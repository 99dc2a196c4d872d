"""The Vulkan instance of this process, and the loader that it comes from."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan import validation
from crossinfer.backends.vulkan.constants import API_1_1, API_1_3
from crossinfer.backends.vulkan.errors import VulkanError, check
from crossinfer.backends.vulkan.functions import Functions, loader_functions
from crossinfer.backends.vulkan.validation import Messenger
from crossinfer.core.settings import read_settings

_LIBRARIES = ("vulkan-1.dll",) if sys.platform == "win32" else ("libvulkan.so.1", "libvulkan.so")


class Instance:
    """A VkInstance, or one that a host made and keeps."""

    def __init__(self, functions: Functions, handle: int, messenger: Messenger | None) -> None:
        self.functions = functions
        self.handle = handle
        self.messenger = messenger

    def physical_devices(self) -> list[int]:
        """The handles of all devices, in the loader's order. Raises VulkanError."""
        call, count = self.functions.vkEnumeratePhysicalDevices, ctypes.c_uint32()
        check("vkEnumeratePhysicalDevices", call(self.handle, ctypes.byref(count), None))
        found = vk.handles([None] * count.value)
        check("vkEnumeratePhysicalDevices", call(self.handle, ctypes.byref(count), found))
        return [handle for handle in found[: count.value] if handle is not None]

    def close(self) -> None:
        """Only for an instance that `create_instance` made, after its devices."""
        if self.messenger is not None:
            self.messenger.close()
        self.functions.vkDestroyInstance(self.handle, None)


def find_loader() -> Functions | None:
    """The functions of the system's Vulkan loader; None where there is none."""
    for name in _LIBRARIES:
        try:
            return loader_functions(ctypes.CDLL(name))
        except (OSError, AttributeError):
            continue
    return None


def create_instance(loader: Functions, *, with_validation: bool = False) -> Instance:
    """Raises VulkanError; KernelUnsupported if the validation layers are wanted and not there."""
    application = vk.VkApplicationInfo(
        pApplicationName=b"crossinfer",
        pEngineName=b"crossinfer",
        apiVersion=min(_loader_version(loader), API_1_3),
    )
    info = vk.VkInstanceCreateInfo(pApplicationInfo=application)
    if with_validation:
        validation.require_layer(loader)
        info = vk.VkInstanceCreateInfo(
            pNext=validation.features(),
            pApplicationInfo=application,
            enabledLayerCount=1,
            ppEnabledLayerNames=vk.strings([validation.LAYER]),
            enabledExtensionCount=1,
            ppEnabledExtensionNames=vk.strings([validation.EXTENSION]),
        )
    created = ctypes.c_void_p()
    made = loader.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(created))
    check("vkCreateInstance", made)
    assert created.value is not None
    functions = loader.of_instance(created.value)
    messenger = Messenger(functions, created.value) if with_validation else None
    return Instance(functions, created.value, messenger)


_lock = threading.Lock()
_shared: dict[tuple[int, bool], Instance | None] = {}


def shared_instance(validation: bool | None = None) -> Instance | None:
    """The process's instance, made at the first call and kept; None without a driver.

    `validation` defaults to the setting. Raises KernelUnsupported if the layers are wanted and not
    installed.
    """
    if validation is None:
        validation = read_settings().validation
    # A child of a fork must not use its parent's, so each process has its own.
    key = (os.getpid(), validation)
    with _lock:
        if key not in _shared:
            _shared[key] = _create_shared(with_validation=validation)
        return _shared[key]


def _create_shared(*, with_validation: bool) -> Instance | None:
    loader = find_loader()
    if loader is None:
        return None
    try:
        return create_instance(loader, with_validation=with_validation)
    except VulkanError:
        return None  # a loader without any driver refuses to make an instance


def _loader_version(loader: Functions) -> int:
    if not loader.has("vkEnumerateInstanceVersion"):
        return API_1_1  # 1.0: creation fails, which is the answer
    version = ctypes.c_uint32()
    check("vkEnumerateInstanceVersion", loader.vkEnumerateInstanceVersion(ctypes.byref(version)))
    return version.value
