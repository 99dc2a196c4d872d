"""The limits that a CPU measures of itself."""

from __future__ import annotations

from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.kernels.limits import peak_operations
from crossinfer.jit.target import AVX2, AVX512_VNNI


def test_limits_are_rates_of_this_machine() -> None:
    with CpuDevice(threads=1) as device:
        limits = device.measure_limits()
        assert device.memory_in_use == 0
    assert limits is not None
    # From a slow virtual machine to the fastest core there is.
    assert 1e8 < limits.read_bytes_per_s < 1e12
    assert 1e8 < limits.float_operations_per_s < 1e12
    assert 1e8 < limits.integer_operations_per_s < 1e13


def test_operations_count_lanes() -> None:
    assert peak_operations(AVX512_VNNI, integers=True) == 4 * peak_operations(
        AVX512_VNNI, integers=False
    )
    assert peak_operations(AVX512_VNNI, integers=False) == 2 * peak_operations(AVX2, integers=False)
