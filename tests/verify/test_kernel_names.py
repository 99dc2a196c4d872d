"""Verdicts go by kernel names, so a name must mean one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.cpu import CpuDevice
from crossinfer.hal.device import Device
from crossinfer.verify.cases import all_cases

DEVICES: dict[str, Callable[[], Device]] = {"cpu": CpuDevice, "vulkan": open_vulkan_or_skip}


@pytest.mark.parametrize("kind", DEVICES)
def test_no_two_kernels_share_a_name(kind: str) -> None:
    handles: dict[str, object] = {}
    with DEVICES[kind]() as device:
        for case in all_cases():
            for lowering in device.lower(case.op, case.operands()):
                for dispatch in lowering.dispatches:
                    kernel = dispatch.kernel
                    known = handles.setdefault(kernel.name, kernel.handle)
                    assert known == kernel.handle, (kernel.name, case.name)
    assert len(handles) > 50
