"""The driver's compiled pipelines, kept on disk: one file for each device and driver."""

from __future__ import annotations

import ctypes
import hashlib

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import Result
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.physical import PhysicalDevice
from crossinfer.core.cache import cache_folder, keep_entry, read_entry


class PipelineCache:
    """A VkPipelineCache that starts with what the file holds."""

    def __init__(self, device: LogicalDevice) -> None:
        """Raises VulkanError."""
        self._device = device
        self._path = cache_folder("vulkan") / f"{_identity(device.physical)}.bin"
        # Behind a checksum, since drivers check no more than a header.
        self._saved = read_entry(self._path) or b""
        info = vk.VkPipelineCacheCreateInfo(
            initialDataSize=len(self._saved), pInitialData=self._saved or None
        )
        self.handle = device.create("PipelineCache", info)

    def save(self) -> None:
        """Write the file again if there is more to keep."""
        data = self._data()
        if not data or data == self._saved:
            return
        keep_entry(self._path, data)
        self._saved = data

    def _data(self) -> bytes:
        get, size = self._device.functions.vkGetPipelineCacheData, ctypes.c_size_t()
        if get(self._device.handle, self.handle, ctypes.byref(size), None) < 0:
            return b""
        data = ctypes.create_string_buffer(size.value)
        code = get(self._device.handle, self.handle, ctypes.byref(size), data)
        return data.raw[: size.value] if code == Result.VK_SUCCESS else b""


def _identity(physical: PhysicalDevice) -> str:
    parts = (
        bytes(physical.identity.deviceUUID),
        bytes(physical.identity.driverUUID),
        physical.cache_uuid,
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]
