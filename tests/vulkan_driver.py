"""The Vulkan device that tests run on: the best one here, watched by the validation layers.

Tests skip, and say why, where there is no driver.
"""

from __future__ import annotations

import functools

import pytest

from crossinfer.backends.vulkan import VulkanDevice, list_devices, open_vulkan
from crossinfer.backends.vulkan.instance import find_loader
from crossinfer.backends.vulkan.validation import require_layer
from crossinfer.core.errors import KernelUnsupported

NO_DRIVER = "There is no Vulkan driver here (on Debian: apt-get install mesa-vulkan-drivers)."


def open_vulkan_or_skip() -> VulkanDevice:
    """One more device. What the validation layers object to is an InvalidUse of the call."""
    if not has_driver():
        pytest.skip(NO_DRIVER)
    return open_vulkan(validation=has_validation())


@functools.cache
def has_driver() -> bool:
    return bool(list_devices())


@functools.cache
def has_validation() -> bool:
    """Whether the validation layers are installed."""
    loader = find_loader()
    assert loader is not None
    try:
        require_layer(loader)
    except KernelUnsupported:
        return False
    return True
