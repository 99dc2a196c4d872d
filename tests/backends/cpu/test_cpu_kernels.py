"""Every op but linear, in every case, on every instruction set that this machine can run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.cpu.kernel_device import KernelDevice

from crossinfer.jit.target import Target, host_targets
from crossinfer.verify.cases import all_cases
from crossinfer.verify.runner import run_case

VARIANTS = sorted({case.variant for case in all_cases() if case.op.name != "linear"})


@pytest.fixture(scope="module", params=host_targets(), ids=lambda target: target.name)
def device(request: pytest.FixtureRequest) -> Iterator[KernelDevice]:
    target: Target = request.param
    with KernelDevice(target) as opened:
        yield opened


@pytest.mark.parametrize("variant", VARIANTS)
def test_cases(device: KernelDevice, variant: str) -> None:
    rng = np.random.default_rng()
    for case in all_cases():
        if case.variant == variant:
            outcomes = run_case(device, case, rng)
            assert outcomes
            assert [outcome.reason for outcome in outcomes if not outcome.passed] == []
