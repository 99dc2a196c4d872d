"""How the host waits for a fence: by an event on Windows, by asking again and again elsewhere.

libvkd3d has events too, but a wait for one with a time limit returns at once, and one without a
limit could hang for ever.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

from crossinfer.backends.d3d12.com import ComObject

_SLICE_S = 0.1
"""Python gets a word in this often, for interrupts."""
_BUSY_S = 100e-6
"""Short kernels end while the host asks; then it sleeps between questions, ever longer."""
_LONGEST_SLEEP_S = 1e-3


def wait_until(fence: ComObject, is_done: Callable[[], bool], value: int, timeout_s: float) -> bool:
    """Whether `fence` reaches `value` (as `is_done` tells) within the time. Raises ComError."""
    if sys.platform == "win32":
        return _wait_for_event(fence, is_done, value, timeout_s)
    return poll(is_done, timeout_s)


def poll(is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it becomes true within the time."""
    start = time.monotonic()
    sleep_s = 20e-6
    while not is_done():
        passed = time.monotonic() - start
        if passed >= timeout_s:
            return is_done()
        if passed > _BUSY_S:
            time.sleep(min(sleep_s, timeout_s - passed))
            sleep_s = min(2 * sleep_s, _LONGEST_SLEEP_S)
    return True


if sys.platform == "win32":

    def _wait_for_event(
        fence: ComObject, is_done: Callable[[], bool], value: int, timeout_s: float
    ) -> bool:
        if poll(is_done, _BUSY_S):
            return True
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateEventW.restype = ctypes.c_void_p
        event = ctypes.c_void_p(kernel.CreateEventW(None, False, False, None))
        if not event:
            return poll(is_done, timeout_s)
        end = time.monotonic() + timeout_s
        try:
            fence.SetEventOnCompletion(value, event)
            while not is_done():
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return False
                kernel.WaitForSingleObject(event, max(1, int(min(left_s, _SLICE_S) * 1e3)))
            return True
        finally:
            kernel.CloseHandle(event)
