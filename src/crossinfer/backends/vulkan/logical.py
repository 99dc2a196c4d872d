"""The logical device: its queue, and every object that was made on it.

What is created here is known here, so that closing destroys all of it, latest first, and tests can
see that nothing is left.
"""

from __future__ import annotations

import collections
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import Result
from crossinfer.backends.vulkan.errors import VulkanError, check
from crossinfer.backends.vulkan.functions import Functions
from crossinfer.backends.vulkan.physical import PhysicalDevice

FAULT_EXTENSION = "VK_EXT_device_fault"
_SLICE_S = 0.1
"""Python gets a word in this often while it waits, for interrupts."""


class LogicalDevice:
    """A VkDevice with one queue. `owned`: closing destroys it; a host's is left as it was.

    Raises VulkanError.
    """

    def __init__(
        self,
        physical: PhysicalDevice,
        handle: int,
        queue_family: int,
        queue: int,
        *,
        owned: bool,
        tells_faults: bool = False,
    ) -> None:
        self.physical = physical
        self.handle = handle
        self.queue_family = queue_family
        self.functions: Functions = physical.functions.of_device(handle)
        self.tells_faults = tells_faults
        self.queue_lock = threading.Lock()
        self.queue = queue
        self._owned = owned
        self._objects: dict[tuple[str, int], None] = {}
        self._unused: collections.deque[Callable[[], None]] = collections.deque()
        try:
            self._probe = self.create("Fence", vk.VkFenceCreateInfo())
        except VulkanError:
            self.close()
            raise

    @property
    def objects(self) -> int:
        """How many objects live on the device."""
        return len(self._objects)

    def create(self, kind: str, info: vk.Record) -> int:
        """A new `kind` of object ("Fence", "Buffer"). Raises VulkanError."""
        made = ctypes.c_void_p()
        function = f"vkCreate{kind}"
        create = getattr(self.functions, function)
        check(function, create(self.handle, ctypes.byref(info), None, ctypes.byref(made)))
        return self.keep(f"vkDestroy{kind}", made.value)

    def allocate_memory(self, info: vk.Record) -> int:
        """Raises VulkanError."""
        made = ctypes.c_void_p()
        allocate = self.functions.vkAllocateMemory
        code = allocate(self.handle, ctypes.byref(info), None, ctypes.byref(made))
        check("vkAllocateMemory", code)
        return self.keep("vkFreeMemory", made.value)

    def keep(self, destroyer: str, handle: int | None) -> int:
        """Have `destroyer` called on an object at the end at the latest."""
        assert handle is not None
        self._objects[destroyer, handle] = None
        return handle

    def destroy(self, kind: str, handle: int) -> None:
        self._destroy(f"vkDestroy{kind}", handle)

    def free_memory(self, handle: int) -> None:
        self._destroy("vkFreeMemory", handle)

    def destroy_later(self, destroy: Callable[[], None]) -> None:
        """Called when the garbage collector finds something, on whichever thread it runs."""
        self._unused.append(destroy)

    def destroy_unused(self) -> None:
        """Destroy what was found. Called by the thread that records."""
        while self._unused:
            self._unused.popleft()()

    def submit(self, info: Any, fence: int | None, count: int = 1) -> None:
        """Raises VulkanError."""
        with self.queue_lock:
            code = self.functions.vkQueueSubmit(self.queue, count, info, fence)
        if code:
            check("vkQueueSubmit", code)

    def is_lost(self) -> bool:
        """Whether the driver says so when it is asked about something harmless."""
        return bool(
            self.functions.vkGetFenceStatus(self.handle, self._probe) == Result.VK_ERROR_DEVICE_LOST
        )

    def is_signaled(self, fence: int) -> bool:
        """Raises VulkanError."""
        code = self.functions.vkGetFenceStatus(self.handle, fence)
        check("vkGetFenceStatus", code)
        return bool(code == Result.VK_SUCCESS)

    def wait(self, fence: int, timeout_s: float) -> bool:
        """Whether the fence was signalled within the time. Raises VulkanError."""
        fences = vk.handles([fence])
        end = time.monotonic() + timeout_s
        left = timeout_s
        while True:
            nanoseconds = int(max(0.0, min(left, _SLICE_S)) * 1e9)
            code = self.functions.vkWaitForFences(self.handle, 1, fences, 1, nanoseconds)
            check("vkWaitForFences", code)
            if code == Result.VK_SUCCESS:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False

    def reset(self, fence: int) -> None:
        """Raises VulkanError."""
        check("vkResetFences", self.functions.vkResetFences(self.handle, 1, vk.handles([fence])))

    def becomes_idle(self, timeout_s: float) -> bool:
        """Whether nothing runs any more, within the time."""
        try:
            fence = self.create("Fence", vk.VkFenceCreateInfo())
            self.submit(None, fence, count=0)
            return self.wait(fence, timeout_s)
        except VulkanError as error:
            return error.is_loss

    def close(self) -> None:
        """Destroy every object, and the device if it is ours. Nothing runs any more."""
        self._unused.clear()  # all of it is among the objects
        for destroyer, handle in reversed(list(self._objects)):
            getattr(self.functions, destroyer)(self.handle, handle, None)
        self._objects.clear()
        if self._owned:
            self.functions.vkDestroyDevice(self.handle, None)

    def _destroy(self, destroyer: str, handle: int) -> None:
        del self._objects[destroyer, handle]
        getattr(self.functions, destroyer)(self.handle, handle, None)


def create_logical_device(physical: PhysicalDevice) -> LogicalDevice:
    """A device with one queue that can compute. Raises VulkanError."""
    family = physical.compute_family()
    assert family is not None, "usable devices can compute"
    priority = (ctypes.c_float * 1)(1.0)
    queues = vk.VkDeviceQueueCreateInfo(
        queueFamilyIndex=family.index, queueCount=1, pQueuePriorities=priority
    )
    tells_faults = _tells_faults(physical)
    extensions = [FAULT_EXTENSION] if tells_faults else []
    features = vk.VkPhysicalDeviceFaultFeaturesEXT(deviceFault=1) if tells_faults else None
    info = vk.VkDeviceCreateInfo(
        pNext=features,
        queueCreateInfoCount=1,
        pQueueCreateInfos=queues,
        enabledExtensionCount=len(extensions),
        ppEnabledExtensionNames=vk.strings(extensions) if extensions else None,
    )
    made = ctypes.c_void_p()
    create = physical.functions.vkCreateDevice
    check(
        "vkCreateDevice",
        create(physical.handle, ctypes.byref(info), None, ctypes.byref(made)),
    )
    assert made.value is not None
    queue = ctypes.c_void_p()
    functions = physical.functions.of_device(made.value)
    functions.vkGetDeviceQueue(made.value, family.index, 0, ctypes.byref(queue))
    assert queue.value is not None
    return LogicalDevice(
        physical, made.value, family.index, queue.value, owned=True, tells_faults=tells_faults
    )


def _tells_faults(physical: PhysicalDevice) -> bool:
    if FAULT_EXTENSION not in physical.extensions:
        return False
    return bool(physical.supported(vk.VkPhysicalDeviceFaultFeaturesEXT()).deviceFault)
