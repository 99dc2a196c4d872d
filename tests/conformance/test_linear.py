"""The matrix product in every storage format, against float64."""

from __future__ import annotations

import pytest

from crossinfer.hal.device import Device
from crossinfer.verify.case import Case
from crossinfer.verify.cases import cases_of
from crossinfer.verify.data import Random
from crossinfer.verify.runner import run_case


@pytest.mark.parametrize("case", cases_of("linear"), ids=lambda case: case.name)
def test_linear(shared_device: Device, rng: Random, case: Case) -> None:
    outcomes = run_case(shared_device, case, rng)
    if not outcomes:
        pytest.skip(f"{shared_device.info.name} has no kernel for {case.variant}")
    assert [outcome.reason for outcome in outcomes if not outcome.passed] == []
