"""Locks over compiling and loading, which a forked child must be able to take."""

from __future__ import annotations

import contextlib
import os
import threading


def lock_that_forks_wait_for() -> threading.Lock:
    """A new lock that no other thread holds while one forks.

    Else the child would have it locked for ever, and what it guards half done. Of two such locks,
    the one that is taken first is made last.
    """
    lock = threading.Lock()
    with contextlib.suppress(AttributeError):  # Windows has no fork
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
