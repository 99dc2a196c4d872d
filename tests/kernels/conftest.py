"""A compiler for the tests that need one."""

from __future__ import annotations

import pytest

from crossinfer.core.errors import KernelUnsupported
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.fetch_dxc import fetch_library


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """DXC, fetched if it is not in the cache; skips where it cannot be had."""
    try:
        return Compiler(fetch_library())
    except KernelUnsupported as error:
        pytest.skip(str(error))
