"""Speed of the CPU's kernels on one core by processor time, which other processes lengthen little.

    python -m benchmarks.cpu_kernels products [--formats q4_0,f16] [--shape 4864x896] [--tokens 512]
    python -m benchmarks.cpu_kernels attention [--heads 14x2x64]
    python -m benchmarks.cpu_kernels packing [--formats q4_0,f16]

products: G operations/s, beside a kernel that does nothing but such products in registers; 16-bit
weights also as precision "fast" multiplies them. attention: a decode step and a prefill step of 256
rows at several context lengths; GB/s of the cache and GFLOP/s beside the multiply-adds' peak.
packing: GB/s of a file's bytes into tiles. All weights are random. The shortest of several runs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from crossinfer.backends.cpu.kernels.limits import PEAK_CHAINS, build_peak, peak_operations
from crossinfer.backends.cpu.kernels.linear import lower_linear
from crossinfer.backends.cpu.kernels.packing import pack
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.backends.cpu.lowering import lower
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat, StorageType
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering, Operand
from crossinfer.hal.limits import Products
from crossinfer.jit.target import host_target, short_float_target
from crossinfer.testing.native import bind, guarded, to_memory
from crossinfer.verify.data import random_stored

STORAGES: Mapping[str, StorageType] = {
    storage.label: storage for storage in (*BLOCK_FORMATS, DType.F16, DType.BF16, DType.F32)
}
_REPEATS = 7
_PACKED_SHAPE = 4096, 4096


def seconds(lowering: Lowering, memory: Mapping[str, Array]) -> list[float]:
    """The shortest processor time of each dispatch."""
    found = []
    for dispatch in lowering.dispatches:
        run, groups = bind(dispatch, memory), math.prod(dispatch.grid)
        found.append(min(_timed(run, groups) for _ in range(_REPEATS)))
    return found


def _timed(run: object, groups: int) -> float:
    assert callable(run)
    start = time.thread_time()
    run(0, groups)
    return time.thread_time() - start


def peak_rate(products: Products) -> float:
    """Operations per second of a kernel that does nothing but products in registers.

    Of bfloat16 only where this machine has them.
    """
    host, groups = host_target(), 64
    target = short_float_target(host) if products is Products.SHORT else host
    assert target is not None
    name = f"{products.name.lower()}_limit"
    kernel = kernel_library(target).get(
        name, name, lambda target: build_peak(target, name, products)
    )
    arguments = Argument("seeds", Access.READ), Argument("out", Access.WRITE)
    lowering = Lowering((LoweredDispatch(kernel, arguments, b"", (groups, 1, 1)),))
    memory = {"seeds": np.zeros(4096, np.uint8), "out": np.zeros(4 * PEAK_CHAINS, np.uint8)}
    (spent,) = seconds(lowering, memory)
    return groups * peak_operations(target, products) / spent


def memory_for(
    operands: Mapping[str, Operand], stored: Mapping[str, Array], lowering: Lowering
) -> dict[str, Array]:
    """`stored` has the inputs; outputs and scratch are poisoned."""
    memory = {
        name: to_memory(stored[name], operand)
        if name in stored
        else guarded(operand.storage.bytes_for(operand.shape))
        for name, operand in operands.items()
    }
    return memory | {name: guarded(size) for name, size in lowering.scratch.items()}


def products(formats: Sequence[str], shape: tuple[int, int], tokens: int) -> None:
    N, K = shape
    short = short_float_target(host_target())
    kinds = [kind for kind in Products if kind is not Products.SHORT or short is not None]
    peaks = {kind: peak_rate(kind) for kind in kinds}
    print(f"weight {N}x{K}, {tokens} tokens; processor time of one core")
    print(f"{'format':12}{'prepare us':>12}{'product us':>12}{'G/s':>8}{'of peak':>9}")
    for label, storage in ((label, STORAGES[label]) for label in formats):
        ways = [("", None)]
        if short is not None and storage in (DType.F16, DType.BF16):
            ways.append((" fast", short))
        for name, target in ways:
            operands = {
                "x": float32(tokens, K),
                "weight": Operand(shape, storage, Role.WEIGHT),
                "output": float32(tokens, N),
            }
            library = None if target is None else kernel_library(target)
            (lowering,) = lower_linear(operands, kernel_library(host_target()), library)
            rng = np.random.default_rng(0)
            stored = {
                "x": rng.standard_normal((tokens, K), dtype=np.float32),
                "weight": random_stored(rng, storage, shape),
            }
            *before, product = seconds(lowering, memory_for(operands, stored, lowering))
            rate = 2 * N * K * tokens / product
            if isinstance(storage, BlockFormat):
                kind = Products.INTEGER
            else:
                kind = Products.FLOAT if target is None else Products.SHORT
            prepared = sum(before) * 1e6
            print(
                f"{label + name:12}{prepared:12.0f}{product * 1e6:12.0f}{rate / 1e9:8.0f}"
                f"{rate / peaks[kind]:9.0%}"
            )


def attention(heads: tuple[int, int, int]) -> None:
    query_heads, kv_heads, D = heads
    peak = peak_rate(Products.FLOAT)
    print(f"{query_heads} heads, {kv_heads} KV heads of {D}, f16; processor time of one core")
    print(f"{'rows':>5}{'context':>9}{'us':>9}{'GB/s':>7}{'GFLOP/s':>9}{'of peak':>9}")
    for rows, context in _steps():
        blocks = context // BLOCK_TOKENS
        operands = {
            "q": float32(rows, query_heads * D),
            "cache": Operand((blocks + 1, 2, kv_heads, BLOCK_TOKENS, D), DType.F16, Role.KV_CACHE),
            "query_start": Operand((2,), DType.I32),
            "kv_len": Operand((1,), DType.I32),
            "block_table": Operand((1, blocks), DType.I32),
            "output": float32(rows, query_heads * D),
        }
        (lowering,) = lower(Attention(D, D**-0.5), operands, host_target())
        rng = np.random.default_rng(0)
        stored = {
            "q": rng.standard_normal((rows, query_heads * D), dtype=np.float32),
            "cache": rng.standard_normal(operands["cache"].shape).astype(np.float16),
            "query_start": np.array([0, rows], np.int32),
            "kv_len": np.array([context], np.int32),
            "block_table": rng.permutation(np.arange(1, blocks + 1, dtype=np.int32)),
        }
        spent = sum(seconds(lowering, memory_for(operands, stored, lowering)))
        pairs = rows * (context - rows) + rows * (rows + 1) // 2
        rate = 4 * D * query_heads * pairs / spent
        read = 2 * context * kv_heads * D * DType.F16.block_bytes / spent
        print(
            f"{rows:5}{context:9}{spent * 1e6:9.0f}{read / 1e9:7.1f}{rate / 1e9:9.1f}"
            f"{rate / peak:9.0%}"
        )


def _steps() -> Iterator[tuple[int, int]]:
    """(rows, context)"""
    for rows in (1, 256):
        for context in (256, 512, 4096):
            yield rows, context


def packing(formats: Sequence[str]) -> None:
    for label in formats:
        storage = STORAGES[label]
        raw = random_stored(np.random.default_rng(0), storage, _PACKED_SHAPE)
        raw = np.frombuffer(raw.tobytes(), np.uint8)
        best = math.inf
        for _ in range(_REPEATS):
            start = time.thread_time()
            for _ in pack(raw, _PACKED_SHAPE, storage):
                pass
            best = min(best, time.thread_time() - start)
        print(f"{label:6}{raw.size / best / 1e9:7.1f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("products", "attention", "packing"))
    parser.add_argument("--formats", default=",".join(STORAGES))
    parser.add_argument("--shape", default="4096x4096", help="NxK")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--heads", default="14x2x64", help="query heads, KV heads, size of a head")
    given = parser.parse_args()
    formats = given.formats.split(",")
    if given.what == "packing":
        packing(formats)
    elif given.what == "products":
        N, K = map(int, given.shape.split("x"))
        products(formats, (N, K), given.tokens)
    else:
        query_heads, kv_heads, D = map(int, given.heads.split("x"))
        attention((query_heads, kv_heads, D))


if __name__ == "__main__":
    main()
