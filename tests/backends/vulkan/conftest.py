"""Devices for the Vulkan backend's tests, and a record of the calls that they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.backends.vulkan.functions import signatures


@pytest.fixture
def device() -> Iterator[VulkanDevice]:
    with open_vulkan_or_skip() as opened:
        yield opened


@pytest.fixture
def calls(device: VulkanDevice) -> list[str]:
    """The names of the device's functions, as they are called."""
    functions, made = device.native.functions, list[str]()

    def recorded(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            made.append(name)
            return function(*arguments)

        return call

    for name in signatures():
        if functions.has(name):
            setattr(functions, name, recorded(name, getattr(functions, name)))
    return made
