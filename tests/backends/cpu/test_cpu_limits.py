"""The limits that a CPU measures of itself."""

from __future__ import annotations

from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.kernels.limits import peak_operations
from crossinfer.hal.limits import Products
from crossinfer.jit.target import AVX2, AVX512_BF16, short_float_target


def test_limits_are_rates_of_this_machine() -> None:
    with CpuDevice(threads=1) as device:
        limits = device.measure_limits()
        assert device.memory_in_use == 0
    assert limits is not None
    # From a slow virtual machine to the fastest core there is.
    assert 1e8 < limits.float_operations_per_s < 1e12
    assert 1e8 < limits.integer_operations_per_s < 1e13
    assert limits.short_operations_per_s is None  # nobody allowed it


def test_reading_is_probed_again_and_again() -> None:
    with CpuDevice(threads=1) as device:
        probe = device.read_probe()
        assert probe is not None
        assert all(1e8 < probe.bytes_per_s() < 1e12 for _ in range(3))
        probe.close()
        assert device.memory_in_use == 0


def test_products_of_bfloat16_have_a_limit_where_they_are_allowed() -> None:
    with CpuDevice(threads=1) as device:
        device.allow_rounding()
        allowed = device.measure_limits()
        has_it = short_float_target(device.target) is not None
    assert allowed is not None
    assert (allowed.operations_per_s(Products.SHORT) is not None) == has_it


def test_operations_count_lanes() -> None:
    operations = [peak_operations(AVX512_BF16, products) for products in Products]
    assert operations == [4 * operations[2], 2 * operations[2], operations[2]]
    assert operations[2] == 2 * peak_operations(AVX2, Products.FLOAT)
