"""The first thing that a new backend runs: one matrix product."""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.kernel import Operand
from crossinfer.verify.data import Random, random_values


def test_gemm_smoke(device: Device, rng: Random) -> None:
    M, N, K = 37, 53, 96
    x, weight = random_values(rng, M, K), random_values(rng, N, K)
    operands = {
        "x": float32(M, K),
        "weight": Operand((N, K), DType.F32, Role.WEIGHT),
        "output": float32(M, N),
    }
    lowering = device.lower(Linear(), operands)[0]
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
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    assert np.max(np.abs(result - expected)) <= 1e-5 * np.max(np.abs(expected))
