"""Every shader of the catalog runs on a Vulkan device, in cases that conformance does not have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.kernels.kernel_cases import more_attention_cases, more_linear_cases, more_row_cases
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.kernels import probe
from crossinfer.kernels.catalog import all_shaders
from crossinfer.kernels.dispatching import Capabilities
from crossinfer.kernels.dxc import Compiler
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases
from crossinfer.verify.runner import run_case

CASES = (*more_linear_cases(), *more_attention_cases(), *more_row_cases())
SIZES = (8, 32, 2000)
"""Devices from so small that nothing is cut for their sake to larger than any today."""
_OF_ONE_CUT = ("argmax", "swiglu", "top_k")


@pytest.fixture(scope="module")
def device(compiler: Compiler) -> Iterator[VulkanDevice]:
    del compiler
    with open_vulkan_or_skip() as opened:
        yield opened


@pytest.mark.parametrize("name", sorted({case.op.name for case in CASES}))
def test_cases(device: VulkanDevice, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng()
    for size in SIZES[:1] if name in _OF_ONE_CUT else SIZES:
        monkeypatch.setattr(device, "_capabilities", capabilities(device, size))
        for case in CASES:
            if case.op.name == name:
                outcomes = run_case(device, case, rng)
                assert outcomes
                assert [outcome.reason for outcome in outcomes if not outcome.passed] == []


def test_the_cases_cover_the_catalog(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    covered: set[str] = set()
    for size in SIZES:
        monkeypatch.setattr(device, "_capabilities", capabilities(device, size))
        covered |= {name for case in (*CASES, *all_cases()) for name in kernels_of(device, case)}
    probes = {shader.name for shader in probe.shaders()}  # test_probe.py runs them
    possible = [s for s in all_shaders() if device.native.has_integer_dots or not s.integer_dots]
    assert covered | probes == {shader.name for shader in possible}


def capabilities(device: VulkanDevice, fill_groups: int) -> Capabilities:
    return Capabilities(fill_groups, integer_dots=device.native.has_integer_dots)


def kernels_of(device: VulkanDevice, case: Case) -> set[str]:
    """The kernels of every way to run a case."""
    lowerings = device.lower(case.op, case.operands())
    return {name for lowering in lowerings for name in lowering.kernel_names}
