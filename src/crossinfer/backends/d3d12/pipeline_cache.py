"""The driver's compiled pipelines, kept on disk: a folder for each device and driver.

A blob is checked by the driver, which refuses one of another version; ours is checked for damage
before.
"""

from __future__ import annotations

import ctypes
import hashlib

from crossinfer.backends.d3d12.com import ComError, ComObject, taken
from crossinfer.backends.d3d12.interfaces import ID3DBlob
from crossinfer.backends.d3d12.libraries import blob_bytes
from crossinfer.core.cache import cache_folder, keep_entry, read_entry


class PipelineCache:
    """Blobs by the names of shaders."""

    def __init__(self, identity: str) -> None:
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._folder = cache_folder("d3d12", name)

    def find(self, name: str) -> bytes | None:
        return read_entry(self._folder / name)

    def keep(self, name: str, state: ComObject) -> None:
        """What the driver compiled, if it gives it away."""
        blob = ctypes.c_void_p()
        try:
            state.GetCachedBlob(ctypes.byref(blob))
        except ComError:
            return
        data = blob_bytes(ComObject(taken(blob), ID3DBlob, state.abi))
        if data:
            keep_entry(self._folder / name, data)
