"""A process that runs Python already, loads `libcrossinfer`, and lends it a Vulkan device.

    python -m tests.embedding.vulkan_host LIBRARY MODEL

Prints the tokens, then how often its queue's lock was taken.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from crossinfer.backends.vulkan.identity import usable_devices
from crossinfer.backends.vulkan.instance import create_instance, find_loader
from crossinfer.backends.vulkan.logical import create_logical_device

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class HostDevice(ctypes.Structure):
    """crossinfer_vulkan_device."""

    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("queue_family", ctypes.c_uint32),
        ("instance", ctypes.c_void_p),
        ("physical_device", ctypes.c_void_p),
        ("device", ctypes.c_void_p),
        ("queue", ctypes.c_void_p),
        ("lock_queue", Callback),
        ("unlock_queue", Callback),
        ("user", ctypes.c_void_p),
    )


def main(library_path: str, model_path: str) -> None:
    loader = find_loader()
    assert loader is not None
    instance = create_instance(loader)
    native = create_logical_device(usable_devices(instance)[0])
    library: Any = ctypes.CDLL(library_path)
    library.crossinfer_last_error.restype = ctypes.c_char_p
    events: list[tuple[str, int | None]] = []

    def call(name: str, *arguments: Any) -> int:
        status = int(getattr(library, f"crossinfer_{name}")(*arguments))
        assert status >= 0, library.crossinfer_last_error()
        return status

    host = HostDevice(
        ctypes.sizeof(HostDevice),
        native.queue_family,
        instance.handle,
        native.physical.handle,
        native.handle,
        native.queue,
        Callback(lambda user: events.append(("lock", user))),
        Callback(lambda user: events.append(("unlock", user))),
        1234,
    )
    model, answer, piece = (ctypes.c_void_p() for _ in range(3))
    tokens, count = (ctypes.c_int32 * 6)(), ctypes.c_size_t()
    call("create_with_vulkan", ctypes.byref(host), model_path.encode(), None, ctypes.byref(model))
    call("prompt", model, b"Once upon a time", b'{"max_tokens": 6}', ctypes.byref(answer))
    while call("next", answer, -1, ctypes.byref(piece), None) == 0:
        pass
    call("get_tokens", answer, tokens, ctypes.c_size_t(6), ctypes.byref(count))
    call("destroy", model)
    assert events == [("lock", 1234), ("unlock", 1234)] * (len(events) // 2)
    native.close()  # destroys what only the host owns
    instance.close()
    call("shutdown")
    print(*tokens[: count.value])
    print(len(events) // 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
