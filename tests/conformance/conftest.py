"""The devices that the conformance suite runs on, and its random numbers.

`TEST_DEVICES` (names separated by commas) chooses devices, `TEST_SEED` repeats a run.
"""

from __future__ import annotations

import functools
import os
import secrets
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.d3d12_driver import has_direct3d, open_d3d12_or_skip
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.hal.device import Device
from crossinfer.hal.faults import FaultyDevice
from crossinfer.hal.registry import open_device
from crossinfer.jit.target import host_targets
from crossinfer.verify.data import Random

MakeDevice = Callable[[], Device]

# A backend adds its devices here; the suite passes on them unchanged.
DEVICES: dict[str, MakeDevice] = {
    "reference": lambda: open_device("reference"),
    "cpu": CpuDevice,
    **{f"cpu-{t.name}": functools.partial(CpuDevice, target=t) for t in host_targets()[1:]},
    "vulkan": open_vulkan_or_skip,
    **({"d3d12": open_d3d12_or_skip} if has_direct3d() else {}),
    "faulty": lambda: FaultyDevice(ReferenceDevice(), ()),
}
# These record and check, but execute nothing.
RECORD_ONLY: dict[str, MakeDevice] = {"null": lambda: open_device("null")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = os.environ.get("TEST_DEVICES")
    for fixture, table in (
        ("make_device", DEVICES),
        ("make_any_device", DEVICES | RECORD_ONLY),
        ("shared_device", DEVICES),
    ):
        if fixture in metafunc.fixturenames:
            names = [n for n in table if wanted is None or n in wanted.split(",")]
            metafunc.parametrize(fixture, names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def make_device(request: pytest.FixtureRequest) -> MakeDevice:
    """Opens one more device of a kind that executes."""
    return DEVICES[request.param]


@pytest.fixture(scope="module")
def make_any_device(request: pytest.FixtureRequest) -> MakeDevice:
    """Opens one more device, which may only record."""
    return (DEVICES | RECORD_ONLY)[request.param]


@pytest.fixture
def device(make_device: MakeDevice) -> Iterator[Device]:
    with make_device() as opened:
        yield opened


@pytest.fixture
def any_device(make_any_device: MakeDevice) -> Iterator[Device]:
    with make_any_device() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """One device for all tests of a file."""
    with DEVICES[request.param]() as opened:
        yield opened


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ.get("TEST_SEED") or secrets.randbits(32))


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> Random:
    """Fresh random numbers in each run; a failure shows how to have the same again."""
    print(f"TEST_SEED={seed} repeats these random numbers.")
    return np.random.default_rng([seed, zlib.crc32(request.node.name.encode())])
