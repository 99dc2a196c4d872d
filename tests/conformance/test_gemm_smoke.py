"""The first thing that a new backend runs: one matrix product, in every way that it offers."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.backends.d3d12.directml import gemm_smoke
from crossinfer.core.dtypes import DType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.kernel import Operand
from crossinfer.verify.data import Random, random_values


@pytest.mark.parametrize(
    ("M", "K", "N"),
    [
        (37, 96, 53),
        (5, 64, 32),  # the DirectML product of this shape removes the device of one GPU
    ],
)
def test_gemm_smoke(device: Device, rng: Random, M: int, K: int, N: int) -> None:
    x, weight = random_values(rng, M, K), random_values(rng, N, K)
    operands = {
        "x": float32(M, K),
        "weight": Operand((N, K), DType.F32, Role.WEIGHT),
        "output": float32(M, N),
    }
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    lowerings = device.lower(Linear(), operands)
    assert lowerings
    for lowering in lowerings:
        views = {
            "x": device.upload(x, x.shape, DType.F32).view(),
            "weight": device.upload(weight, weight.shape, DType.F32, Role.WEIGHT).view(),
            "output": device.alloc((M, N), DType.F32).view(0, M * N * 4),
        }
        for name, size in lowering.scratch.items():
            views[name] = device.alloc((size,), DType.I32).view()
        executor = Executor(device)
        for dispatch in lowering.bind(views):
            executor.dispatch(dispatch)
        executor.submit_and_wait()
        result = np.frombuffer(device.download(views["output"]), np.float32).reshape(M, N)
        assert row_error(result, expected) <= Tolerance.F32.value, lowering.kernel_names


def test_directml_gemm_smoke(capsys: pytest.CaptureFixture[str]) -> None:
    """The same by DirectML's own operators, where there is DirectML."""
    code = gemm_smoke.main(["--all"])
    printed = capsys.readouterr().out
    if code == gemm_smoke.ExitCode.NOTHING_TO_RUN:
        pytest.skip(printed.strip().splitlines()[-1])
    assert code == gemm_smoke.ExitCode.RIGHT, printed
