"""Speed of the CPU's `linear` kernels beside the machine's limits, measured in the same minute.

    python benchmarks/cpu_linear.py [--threads 2] [--formats q4_0,q8_0] [--shape 4096x4096]
                                    [--tokens 512] [--target avx2]

Matrix-vector products (T = 1) stream weights from memory: GB/s beside the read bandwidth of a
kernel that only adds up what it reads. Matrix-matrix products (T = 512): operations per second
beside the rate of a kernel that does nothing but `dot4` in registers (or multiply-adds, for scalar
weights). Weights are random; no queue is involved.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.kernels.layout import has_records
from crossinfer.backends.cpu.kernels.linear import lower_linear
from crossinfer.backends.cpu.kernels.unpack_narrow import tile_sizes
from crossinfer.backends.cpu.library import KernelLibrary, kernel_library
from crossinfer.backends.cpu.limits import CpuReadProbe, measure_limits
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.graph.op import float32
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import LoweredDispatch, Operand
from crossinfer.jit.target import host_target, host_targets
from crossinfer.testing.native import bind, guarded, to_memory
from crossinfer.verify.data import random_stored

STORAGES: dict[str, StorageType] = {
    storage.label: storage for storage in (*BLOCK_FORMATS, DType.F16, DType.BF16, DType.F32)
}
_COLD_BYTES = 128 << 20
"""Weights that a matrix-vector run reads in all: more than the caches hold."""
_REPEATS = 5

Memory = Mapping[str, Array]


def best_seconds(threads: int, work: Callable[[int], None]) -> float:
    """The shortest time of a few runs of work(0 … threads - 1), each on a thread of its own."""
    best = math.inf
    for _ in range(_REPEATS):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - start)
    return best


def part_of(dispatch: LoweredDispatch, number: int, threads: int) -> tuple[int, int]:
    """First workgroup and number of workgroups of one thread's share."""
    total = math.prod(dispatch.grid)
    first = total * number // threads
    return first, total * (number + 1) // threads - first


def run_all(
    dispatches: Sequence[LoweredDispatch], memories: Sequence[Memory], threads: int
) -> float:
    """Seconds for the dispatches over each memory, each thread taking its share of every one."""
    calls = [
        [
            (bind(dispatch, memory), *part_of(dispatch, number, threads))
            for memory in memories
            for dispatch in dispatches
        ]
        for number in range(threads)
    ]

    def work(number: int) -> None:
        for function, first, count in calls[number]:
            function(first, count)

    return best_seconds(threads, work)


def measure(
    kernels: KernelLibrary,
    storage: StorageType,
    shape: tuple[int, int],
    T: int,
    threads: int,
    bytes_read: int = 0,
) -> tuple[float, float]:
    """(GB/s of weights, G operations/s) of both dispatches of a product.

    Different copies of the weight are taken in turn, until `bytes_read` are read.
    """
    N, K = shape
    weight = Operand(shape, storage, Role.WEIGHT)
    operands = {"x": float32(T, K), "weight": weight, "output": float32(T, N)}
    (lowering,) = lower_linear(operands, kernels)
    rng = np.random.default_rng(0)
    packed = to_memory(random_stored(rng, storage, shape), weight)
    of_weight = packed.size
    if has_records(storage):
        of_weight = int(tile_sizes(packed, shape, storage).sum())
    memory = {
        "x": to_memory(rng.standard_normal((T, K), dtype=np.float32), operands["x"]),
        "output": guarded(4 * T * N),
    } | {name: guarded(size) for name, size in lowering.scratch.items()}
    copies = max(1, bytes_read // of_weight)
    memories = [memory | {"weight": packed.copy() if copies > 1 else packed} for _ in range(copies)]
    seconds = run_all(lowering.dispatches, memories, threads)
    return of_weight * copies / seconds / 1e9, 2 * N * K * T * copies / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--formats", default=",".join(STORAGES))
    parser.add_argument("--shape", default="4096x4096", help="NxK")
    parser.add_argument("--tokens", type=int, default=512)
    targets = {target.name: target for target in host_targets()}
    parser.add_argument("--target", choices=targets, default=host_target().name)
    given = parser.parse_args()
    N, K = map(int, given.shape.split("x"))
    kernels = kernel_library(targets[given.target])
    with CpuDevice(threads=given.threads, target=kernels.target) as device:
        limits = measure_limits(device, kernels.target)
        with contextlib.closing(CpuReadProbe(device, kernels.target)) as probe:
            read = max(probe.bytes_per_s() for _ in range(_REPEATS)) / 1e9
    integers = limits.integer_operations_per_s / 1e9
    floats = limits.float_operations_per_s / 1e9
    print(f"{kernels.target.name}, {given.threads} threads, weight {N}x{K}")
    print(f"limits: read {read:.1f} GB/s, dot4 {integers:.0f} G/s, multiply-add {floats:.0f} G/s")
    print(f"{'format':8}{'T=1 GB/s':>10}{'of read':>9}{f'T={given.tokens} G/s':>12}{'of peak':>9}")
    for label in given.formats.split(","):
        storage = STORAGES[label]
        gb, _ = measure(kernels, storage, (N, K), 1, given.threads, _COLD_BYTES)
        _, rate = measure(kernels, storage, (N, K), given.tokens, given.threads)
        peak = floats if isinstance(storage, DType) else integers
        print(f"{label:8}{gb:10.1f}{gb / read:9.0%}{rate:12.0f}{rate / peak:9.0%}")


if __name__ == "__main__":
    main()
