"""Every op but linear, in every storage and shape class, against its float64 meaning."""

from __future__ import annotations

import pytest

from crossinfer.hal.device import Device
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases
from crossinfer.verify.data import Random
from crossinfer.verify.runner import run_case

CASES = [case for case in all_cases() if case.op.name != "linear"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op(shared_device: Device, rng: Random, case: Case) -> None:
    outcomes = run_case(shared_device, case, rng)
    if not outcomes:
        pytest.skip(f"{shared_device.info.name} has no kernel for {case.variant}")
    assert [outcome.reason for outcome in outcomes if not outcome.passed] == []
