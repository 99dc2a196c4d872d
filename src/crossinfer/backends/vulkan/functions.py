"""The functions of Vulkan that this backend calls, found by name when they are first called.

Plain ctypes over the loader: a call costs about a microsecond, nothing is parsed or generated at
import, and no dependency comes along. Every argument is a number, an address, or what ctypes can
take the address of.
"""

from __future__ import annotations

import ctypes
from typing import Any

# Name and arguments: p a pointer or handle, u 32 bits, q 64 bits. Functions return VkResult
# unless a `-` says that they return nothing.
_LOADER = """
vkEnumerateInstanceVersion p
vkEnumerateInstanceLayerProperties p p
vkCreateInstance p p p
"""

_INSTANCE = """
vkDestroyInstance p p -
vkEnumeratePhysicalDevices p p p
vkGetPhysicalDeviceProperties2 p p -
vkGetPhysicalDeviceFeatures2 p p -
vkGetPhysicalDeviceMemoryProperties2 p p -
vkGetPhysicalDeviceQueueFamilyProperties p p p -
vkEnumerateDeviceExtensionProperties p p p p
vkCreateDevice p p p p
vkCreateDebugUtilsMessengerEXT p p p p
vkDestroyDebugUtilsMessengerEXT p p p -
"""

_DEVICE = """
vkDestroyDevice p p -
vkGetDeviceQueue p u u p -
vkQueueSubmit p u p p
vkAllocateMemory p p p p
vkFreeMemory p p p -
vkMapMemory p p q q u p
vkCreateBuffer p p p p
vkDestroyBuffer p p p -
vkGetBufferMemoryRequirements p p p -
vkBindBufferMemory p p p q
vkCreateFence p p p p
vkDestroyFence p p p -
vkResetFences p u p
vkGetFenceStatus p p
vkWaitForFences p u p u q
vkCreateQueryPool p p p p
vkDestroyQueryPool p p p -
vkGetQueryPoolResults p p u u q p q u
vkCreateShaderModule p p p p
vkDestroyShaderModule p p p -
vkCreatePipelineCache p p p p
vkDestroyPipelineCache p p p -
vkGetPipelineCacheData p p p p
vkCreateComputePipelines p p u p p p
vkDestroyPipeline p p p -
vkCreateDescriptorSetLayout p p p p
vkDestroyDescriptorSetLayout p p p -
vkCreatePipelineLayout p p p p
vkDestroyPipelineLayout p p p -
vkCreateDescriptorPool p p p p
vkDestroyDescriptorPool p p p -
vkAllocateDescriptorSets p p p
vkUpdateDescriptorSets p u p u p -
vkCreateCommandPool p p p p
vkDestroyCommandPool p p p -
vkAllocateCommandBuffers p p p
vkFreeCommandBuffers p p u p -
vkBeginCommandBuffer p p
vkEndCommandBuffer p
vkCmdBindPipeline p u p -
vkCmdBindDescriptorSets p u p u u p u p -
vkCmdPushConstants p p u u u p -
vkCmdDispatch p u u u -
vkCmdCopyBuffer p p p u p -
vkCmdPipelineBarrier p u u u u p u p u p -
vkCmdResetQueryPool p p u u -
vkCmdWriteTimestamp p u p u -
vkGetDeviceFaultInfoEXT p p p
"""

_ARGUMENTS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "u": ctypes.c_uint32,
    "q": ctypes.c_uint64,
}
_FIND = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


def signatures() -> dict[str, list[str]]:
    """Every function of the tables with its arguments, `-` at the end if it returns nothing."""
    lines = filter(None, (_LOADER + _INSTANCE + _DEVICE).splitlines())
    return {name: arguments for name, *arguments in map(str.split, lines)}


_SIGNATURES = signatures()


class Functions:
    """The functions that one finder (of the loader, an instance or a device) gives.

    Calling one for the first time looks it up; after that it is an attribute like any other.
    """

    def __init__(self, find: Any, owner: int | None) -> None:
        self._find = find
        self._owner = owner

    def has(self, name: str) -> bool:
        return bool(self._find(self._owner, name.encode()))

    def __getattr__(self, name: str) -> Any:
        if name not in _SIGNATURES:
            raise AttributeError(f"The table of functions has no {name}.")
        address = self._find(self._owner, name.encode())
        if not address:
            raise AttributeError(f"The Vulkan driver has no {name}.")
        made = _prototype(_SIGNATURES[name])(address)
        setattr(self, name, made)
        return made

    def of_instance(self, instance: int) -> Functions:
        return Functions(self._find, instance)

    def of_device(self, device: int) -> Functions:
        """The device's own functions, without the loader between."""
        address = self._find(self._owner, b"vkGetDeviceProcAddr")
        return Functions(_FIND(address), device)


def loader_functions(library: ctypes.CDLL) -> Functions:
    """Raises AttributeError if the library is no Vulkan loader."""
    address = ctypes.cast(library.vkGetInstanceProcAddr, ctypes.c_void_p).value
    assert address is not None
    return Functions(_FIND(address), None)


def _prototype(arguments: list[str]) -> Any:
    returned = None if arguments[-1] == "-" else ctypes.c_int32
    kinds = [_ARGUMENTS[kind] for kind in arguments if kind != "-"]
    return ctypes.CFUNCTYPE(returned, *kinds)
