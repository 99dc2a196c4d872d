"""The logical device: its queue, and every object that was made on it.

What is created here is known here, so that closing destroys all of it, latest first, and tests can
see that nothing is left.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import Result
from crossinfer.backends.vulkan.errors import VulkanError, check
from crossinfer.backends.vulkan.functions import Functions
from crossinfer.backends.vulkan.physical import INTEGER_DOT_EXTENSION, PhysicalDevice

FAULT_EXTENSION = "VK_EXT_device_fault"
_SLICE_S = 0.1
"""Python gets a word in this often while it waits, for interrupts."""


@dataclasses.dataclass(frozen=True)
class Queue:
    """A VkQueue; whoever submits holds its lock."""

    handle: int
    family: int
    lock: contextlib.AbstractContextManager[object]


class LogicalDevice:
    """A VkDevice with one queue. `owned`: closing destroys it; a host's is left as it was.

    `copy_queue` (family, handle) is for copies beside it; without one they go to the same queue.
    `tells_faults` and `has_integer_dots` say that it was made with those features. Raises
    VulkanError.
    """

    def __init__(
        self,
        physical: PhysicalDevice,
        handle: int,
        queue_family: int,
        queue: int,
        *,
        owned: bool,
        copy_queue: tuple[int, int] | None = None,
        tells_faults: bool = False,
        has_integer_dots: bool = False,
        queue_lock: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        self.physical = physical
        self.handle = handle
        self.queue_family = queue_family
        self.functions: Functions = physical.functions.of_device(handle)
        self.tells_faults = tells_faults
        self.has_integer_dots = has_integer_dots
        self.queue_lock = threading.Lock() if queue_lock is None else queue_lock
        self.queue = queue
        self.copy_queue = Queue(queue, queue_family, self.queue_lock)
        if copy_queue is not None:
            self.copy_queue = Queue(copy_queue[1], copy_queue[0], threading.Lock())
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

    def submit_to(self, queue: Queue, info: Any, fence: int | None, count: int = 1) -> None:
        """Raises VulkanError."""
        with queue.lock:
            code = self.functions.vkQueueSubmit(queue.handle, count, info, fence)
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

    def wait(self, fence: Any, timeout_s: float) -> bool:
        """Whether the fence, a handle or an array of one, was signalled within the time.

        Raises VulkanError.
        """
        fences = vk.handles([fence]) if isinstance(fence, int) else fence
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

    def reset(self, fence: Any) -> None:
        """Make a fence, a handle or an array of one, ready for another use. Raises VulkanError."""
        fences = vk.handles([fence]) if isinstance(fence, int) else fence
        check("vkResetFences", self.functions.vkResetFences(self.handle, 1, fences))

    def becomes_idle(self, timeout_s: float) -> bool:
        """Whether nothing runs any more, within the time."""
        own = Queue(self.queue, self.queue_family, self.queue_lock)
        return all(self._is_idle(q, timeout_s) for q in dict.fromkeys((own, self.copy_queue)))

    def _is_idle(self, queue: Queue, timeout_s: float) -> bool:
        try:
            fence = self.create("Fence", vk.VkFenceCreateInfo())
            self.submit_to(queue, None, fence, count=0)
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
    """A device with one queue that can compute, and one for copies beside it, if it has such.

    Raises VulkanError.
    """
    family = physical.compute_family()
    assert family is not None, "usable devices can compute"
    copying = physical.copy_family()
    priority = (ctypes.c_float * 1)(1.0)
    queues = [
        vk.VkDeviceQueueCreateInfo(
            queueFamilyIndex=found.index, queueCount=1, pQueuePriorities=priority
        )
        for found in (family, copying)
        if found is not None
    ]
    tells_faults, has_integer_dots = _tells_faults(physical), physical.has_integer_dots()
    extensions: list[str] = []
    features: vk.Record | None = None
    if tells_faults:
        extensions.append(FAULT_EXTENSION)
        features = vk.VkPhysicalDeviceFaultFeaturesEXT(pNext=features, deviceFault=1)
    if has_integer_dots:
        extensions.append(INTEGER_DOT_EXTENSION)
        features = vk.VkPhysicalDeviceShaderIntegerDotProductFeatures(
            pNext=features, shaderIntegerDotProduct=1
        )
    info = vk.VkDeviceCreateInfo(
        pNext=features,
        queueCreateInfoCount=len(queues),
        pQueueCreateInfos=vk.array_of(queues),
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
    return LogicalDevice(
        physical,
        made.value,
        family.index,
        _queue(physical, made.value, family.index),
        owned=True,
        copy_queue=(
            (copying.index, _queue(physical, made.value, copying.index)) if copying else None
        ),
        tells_faults=tells_faults,
        has_integer_dots=has_integer_dots,
    )


def _queue(physical: PhysicalDevice, device: int, family: int) -> int:
    queue = ctypes.c_void_p()
    functions = physical.functions.of_device(device)
    functions.vkGetDeviceQueue(device, family, 0, ctypes.byref(queue))
    assert queue.value is not None
    return queue.value


def _tells_faults(physical: PhysicalDevice) -> bool:
    if FAULT_EXTENSION not in physical.extensions:
        return False
    return bool(physical.supported(vk.VkPhysicalDeviceFaultFeaturesEXT()).deviceFault)
