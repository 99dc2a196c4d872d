"""The probe computes what it counts."""

from __future__ import annotations

import numpy as np
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.core.dtypes import DType
from crossinfer.hal.executor import Executor
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.probe import fma_operations, fma_threads, lower_fma_rate


def test_every_multiply_add_is_done(compiler: Compiler) -> None:
    del compiler
    groups, rounds, factor, addend = 2, 3, 0.99, 0.25
    with open_vulkan_or_skip() as device:
        output = device.alloc((fma_threads(groups),), DType.F32)
        run = lower_fma_rate(groups, rounds, factor, addend, device._pipelines.kernel)
        executor = Executor(device)
        for dispatch in run.bind({"output": output.view()}):
            executor.dispatch(dispatch)
        executor.submit_and_wait()
        found = np.frombuffer(device.download(output), np.float32)[: fma_threads(groups)]
    chains = np.arange(16, dtype=np.float64)
    steps = fma_operations(groups, rounds) // (2 * fma_threads(groups) * len(chains))
    for _ in range(steps):
        chains = chains * np.float64(np.float32(factor)) + addend
    np.testing.assert_allclose(found, chains.sum(), rtol=1e-5)
