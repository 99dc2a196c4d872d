"""Every op but linear, in every case, on every instruction set that this machine can run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.cpu.kernel_device import KernelDevice

from crossinfer.formats.blocks import BlockFormat
from crossinfer.hal.buffer import Role
from crossinfer.jit.target import Target, host_targets
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases
from crossinfer.verify.runner import run_case

VARIANTS = sorted({case.variant for case in all_cases() if case.op.name != "linear"})


@pytest.fixture(scope="module", params=host_targets(), ids=lambda target: target.name)
def device(request: pytest.FixtureRequest) -> Iterator[KernelDevice]:
    target: Target = request.param
    with KernelDevice(target) as opened:
        yield opened


def is_left_to_simpler_ops(case: Case) -> bool:
    """Folded norms, attention with its rotation, and products of which only some round their
    activations.
    """
    if case.op.name == "rope_attention":
        return True
    weights = [o.storage for o in case.inputs.values() if o.role is Role.WEIGHT]
    rounding = {isinstance(storage, BlockFormat) for storage in weights}
    return "norm_weight" in case.inputs or len(rounding) > 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_cases(device: KernelDevice, variant: str) -> None:
    rng = np.random.default_rng()
    for case in all_cases():
        if case.variant == variant:
            outcomes = run_case(device, case, rng)
            assert bool(outcomes) is not is_left_to_simpler_ops(case)
            assert [outcome.reason for outcome in outcomes if not outcome.passed] == []
