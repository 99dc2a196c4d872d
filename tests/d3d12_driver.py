"""The Direct3D 12 device that tests run on: Windows' best, or libvkd3d's.

On Linux these tests run by `scripts/d3d12-run`, as `make test` does; elsewhere they skip, and say
why. One device stays open for the whole run, so that kernels are compiled once.
"""

from __future__ import annotations

import functools

import pytest

from crossinfer.backends.d3d12 import D3D12Device, list_devices, open_d3d12

NO_DIRECT3D = (
    "There is no Direct3D 12 here; on Linux, `scripts/d3d12-run .venv/bin/python -m pytest …` has "
    "it by libvkd3d."
)

_DEADLINE_S = 600.0
"""A software driver compiles a kernel when it first runs, for seconds; a busy machine, longer."""


@functools.cache
def has_direct3d() -> bool:
    return bool(list_devices())


def open_d3d12_or_skip() -> D3D12Device:
    """One more device."""
    if not has_direct3d():
        pytest.skip(NO_DIRECT3D)
    _kept_open()
    return open_d3d12(deadline_s=_DEADLINE_S)


@functools.cache
def _kept_open() -> D3D12Device:
    return open_d3d12()
