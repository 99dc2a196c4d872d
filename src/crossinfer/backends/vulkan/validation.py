"""The validation layers: what an instance needs to turn them on, and what they say.

Synchronisation validation is on too: it finds a barrier that is missing.
"""

from __future__ import annotations

import ctypes
import sys

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import (
    MESSAGE_TYPE_VALIDATION,
    VALIDATE_SYNCHRONIZATION,
    Severity,
)
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.functions import Functions
from crossinfer.core.errors import KernelUnsupported

LAYER = "VK_LAYER_KHRONOS_validation"
EXTENSION = "VK_EXT_debug_utils"
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
)


def require_layer(loader: Functions) -> None:
    """Raises KernelUnsupported if the layer is not installed, VulkanError."""
    count = ctypes.c_uint32()
    call = loader.vkEnumerateInstanceLayerProperties
    check("vkEnumerateInstanceLayerProperties", call(ctypes.byref(count), None))
    found = (vk.VkLayerProperties * count.value)()
    check("vkEnumerateInstanceLayerProperties", call(ctypes.byref(count), found))
    if LAYER.encode() not in {layer.layerName for layer in found}:
        raise KernelUnsupported(
            f"The Vulkan layer {LAYER} is not installed here: install it (on Debian "
            "vulkan-validationlayers), or set CROSSINFER_VALIDATION to 0."
        )


def features() -> vk.Record:
    """To be chained into the instance's structure."""
    enabled = (ctypes.c_uint32 * 1)(VALIDATE_SYNCHRONIZATION)
    return vk.VkValidationFeaturesEXT(
        enabledValidationFeatureCount=1, pEnabledValidationFeatures=enabled
    )


class Messenger:
    """Collects what the layers complain about; each message goes to stderr too."""

    def __init__(self, functions: Functions, instance: int) -> None:
        self.complaints: list[str] = []
        self._functions = functions
        self._instance = instance
        self._callback = _CALLBACK(self._receive)  # lives as long as the driver may call it
        info = vk.VkDebugUtilsMessengerCreateInfoEXT(
            messageSeverity=Severity.WARNING | Severity.ERROR,
            messageType=MESSAGE_TYPE_VALIDATION,
            pfnUserCallback=ctypes.cast(self._callback, ctypes.c_void_p).value,
        )
        handle = ctypes.c_void_p()
        made = functions.vkCreateDebugUtilsMessengerEXT(
            instance, ctypes.byref(info), None, ctypes.byref(handle)
        )
        check("vkCreateDebugUtilsMessengerEXT", made)
        self._handle = handle.value

    def take(self) -> list[str]:
        """The messages since the last time."""
        taken, self.complaints[:] = list(self.complaints), []
        return taken

    def close(self) -> None:
        self._functions.vkDestroyDebugUtilsMessengerEXT(self._instance, self._handle, None)

    def _receive(self, _severity: int, _kind: int, address: int, _user: int | None) -> int:
        data = vk.VkDebugUtilsMessengerCallbackDataEXT.from_address(address)
        text = ctypes.string_at(data.pMessage).decode(errors="replace") if data.pMessage else ""
        self.complaints.append(text)
        print(f"Vulkan validation: {text}", file=sys.stderr)
        return 0  # the call that was complained about goes on
