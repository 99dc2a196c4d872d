"""Pipelines: made once, and what the driver compiled is kept on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.backends.vulkan.vulkan_programs import chain
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice, pipeline_cache
from crossinfer.backends.vulkan.pipeline_cache import PipelineCache


def test_a_pipeline_is_made_when_it_is_first_used_and_kept(
    device: VulkanDevice, calls: list[str]
) -> None:
    for _ in range(3):
        chain(device, 4)
    assert calls.count("vkCreateComputePipelines") == 1
    assert calls.count("vkCreateShaderModule") == calls.count("vkDestroyShaderModule") == 1


def cache_file(cache: Path) -> Path:
    (found,) = cache.iterdir()
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for pipelines; shaders come from where they always do."""
    monkeypatch.setattr(pipeline_cache, "cache_folder", lambda *_: tmp_path)
    return tmp_path


def test_what_the_driver_compiled_is_saved_and_loaded(cache: Path) -> None:
    with open_vulkan_or_skip() as device:
        chain(device, 1)
    saved = cache_file(cache).read_bytes()
    with open_vulkan_or_skip() as device:
        assert PipelineCache(device.native)._saved == saved[32:]
        chain(device, 1)
    assert cache_file(cache).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"short", bytes(100)])
def test_a_damaged_file_is_replaced(cache: Path, damage: bytes) -> None:
    with open_vulkan_or_skip() as device:
        chain(device, 1)
    path = cache_file(cache)
    good = path.read_bytes()
    path.write_bytes(damage if damage != bytes(100) else good[:-1] + bytes([good[-1] ^ 1]))
    with open_vulkan_or_skip() as device:
        assert PipelineCache(device.native)._saved == b""
        device.submit(chain(device, 1)).wait()
    assert path.read_bytes() == good


def test_a_device_that_compiled_nothing_writes_nothing(cache: Path) -> None:
    open_vulkan_or_skip().close()
    assert list(cache.iterdir()) == []
