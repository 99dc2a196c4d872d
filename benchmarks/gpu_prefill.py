"""The products and the attention of prefill on a GPU, each against the device's float32 rate.

    python -m benchmarks.gpu_prefill                                     Vulkan, 7B, f16
    python -m benchmarks.gpu_prefill --device vulkan:1 --shape qwen2.5-0.5b --storage q8_0
    python -m benchmarks.gpu_prefill --shape tiny-qwen2 --rows 32 --fma-rounds 4    software driver

The rate is that of multiply-adds and nothing else (`fma_rate`), measured first. For each number of
rows and each matrix of a layer: the kernels, the cut of K, microseconds, TFLOP/s and the share of
the rate, and torch's rates where it has a GPU. Then attention over contexts of several lengths.
Inputs are random; no model is made. Shaders must have been compiled before
(`python -m crossinfer.kernels.build`).
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np
from benchmarks.gpu_smoke import STORAGES, Work, device_seconds, first

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import OpDescription, Operand
from crossinfer.hal.registry import open_device
from crossinfer.kernels.probe import fma_operations, fma_threads, lower_fma_rate
from crossinfer.kernels.shader_device import ShaderDevice
from crossinfer.testing.shapes import SHAPES, Kind, ModelShape
from crossinfer.verify.data import random_stored

FMA_GROUPS = 2112
"""Of 256 threads; a multiple of the processors that many cards have, and enough to fill them."""
TORCH_REPEATS = 6
WARM_S = 0.3
"""A card that was idle takes some time to raise its clock, to five times what it was."""
RANDOM_ROWS = 512
"""Of a tensor; they are repeated."""


def main() -> int:
    options = parse()
    shape = SHAPES[options.shape]
    storage = STORAGES[options.storage]
    with open_device(options.device) as device:
        print(f"{device.info.name}: {device.info.description}, {device.info.driver}")
        rate = float_rate(device, options.fma_rounds)
        print(f"multiply-adds: {rate / 1e12:.1f} TFLOP/s, the 100% of what follows", flush=True)
        for rows in options.rows:
            products(device, shape, storage, rows, rate)
        for rows, context in itertools.product(options.rows, options.contexts):
            if rows <= context:
                attention(device, shape, rows, context, rate)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_prefill")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--shape", default="qwen2.5-7b", choices=SHAPES)
    parser.add_argument("--storage", default="f16", choices=STORAGES)
    parser.add_argument("--rows", nargs="+", type=int, default=(32, 128, 256, 512))
    parser.add_argument("--contexts", nargs="+", type=int, default=(512, 4096))
    parser.add_argument("--fma-rounds", type=int, default=4000)
    return parser.parse_args()


def float_rate(device: Device, rounds: int = 4000) -> float:
    """float32 operations a second of a kernel that only multiplies and adds."""
    work = Work(device)
    output = work.alloc(Operand((fma_threads(FMA_GROUPS),), DType.F32))
    assert isinstance(device, ShaderDevice), "the kernel belongs to no op, so it is asked for"
    dispatches = lower_fma_rate(FMA_GROUPS, rounds, 0.999, 0.001, device.kernel).bind(
        {"output": output}
    )
    try:
        return fma_operations(FMA_GROUPS, rounds) / device_seconds(device, dispatches)
    finally:
        work.free()


def matrices(shape: ModelShape) -> Counter[tuple[int, ...]]:
    """The shapes of all matrices of the layers, and how many there are of each."""
    return Counter(
        weight.shape
        for weight in shape.weights()
        if weight.layer is not None and weight.kind is Kind.MATRIX
    )


def product_operations(shapes: Mapping[tuple[int, ...], int]) -> int:
    """Of each row."""
    return 2 * sum(math.prod(shape) * count for shape, count in shapes.items())


def products(
    device: Device, shape: ModelShape, storage: StorageType, rows: int, rate: float
) -> None:
    """Prints each matrix of a layer, and what all of them take."""
    shapes = matrices(shape)
    total = 0.0
    for (N, K), count in shapes.items():
        operands = {"x": float32(rows, K), "weight": Operand((N, K), storage, Role.WEIGHT)}
        operands |= Linear().infer(operands)
        seconds, kernels = run(device, Linear(), operands, {})
        total += seconds * count
        operations = 2 * rows * N * K
        print(
            f"{rows} rows, {N} x {K}: {kernels}, {seconds * 1e6:.0f} us, "
            f"{operations / seconds / 1e12:.1f} TFLOP/s, {operations / seconds / rate:.0%}"
        )
    operations = product_operations(shapes) * rows
    print(
        f"{rows} rows, all products: {total * 1e3:.2f} ms, {operations / total / 1e12:.1f} "
        f"TFLOP/s, {operations / total / rate:.0%}{torch_rates(shapes, rows)}",
        flush=True,
    )


def attention(device: Device, shape: ModelShape, rows: int, context: int, rate: float) -> None:
    """Prints attention of the last `rows` tokens of a context."""
    blocks, D = ceil_div(context, BLOCK_TOKENS), shape.head_dim
    tables = {
        "query_start": np.array((0, rows), np.int32),
        "kv_len": np.array((context,), np.int32),
        "block_table": 1 + np.random.default_rng(1).permutation(blocks).astype(np.int32)[None],
    }
    cache = (1 + blocks, 2, shape.kv_heads, BLOCK_TOKENS, D)
    operands = {
        "q": float32(rows, shape.heads * D),
        "cache": Operand(cache, DType.F16, Role.KV_CACHE),
        **{name: Operand(table.shape, DType.I32) for name, table in tables.items()},
    }
    op = Attention(D, D**-0.5)
    operands |= op.infer(operands)
    seconds, kernels = run(device, op, operands, tables)
    seen = rows * context - rows * (rows - 1) // 2
    operations = 4 * D * shape.heads * seen
    print(
        f"{rows} rows, attention over {context}: {kernels}, {seconds * 1e6:.0f} us a layer, "
        f"{operations / seconds / 1e12:.1f} TFLOP/s, {operations / seconds / rate:.0%}",
        flush=True,
    )


def run(
    device: Device, op: OpDescription, operands: Mapping[str, Operand], given: Mapping[str, Array]
) -> tuple[float, str]:
    """(seconds of the first way, its kernels with their grids), on random inputs."""
    work, rng = Work(device), np.random.default_rng(2)
    views: dict[str, View] = {}
    try:
        for name, kind in operands.items():
            values = given.get(name)
            if values is None:
                values = random_tensor(rng, kind)
            buffer = device.upload(values, kind.shape, kind.storage, kind.role)
            work.buffers.append(buffer)
            views[name] = buffer.view()
        way = first(device, op, dict(operands))
        dispatches = work.dispatches(op, dict(operands), **views)
        seconds, end = math.inf, time.perf_counter() + WARM_S
        while math.isinf(seconds) or time.perf_counter() < end:
            seconds = min(seconds, device_seconds(device, dispatches))
    finally:
        work.free()
    grids = ["x".join(map(str, dispatch.grid)) for dispatch in way.dispatches]
    return seconds, ", ".join(
        f"{name} {grid}" for name, grid in zip(way.kernel_names, grids, strict=True)
    )


def random_tensor(rng: np.random.Generator, kind: Operand) -> Array:
    """A tensor as it lies in a file."""
    columns = kind.shape[-1]
    rows = math.prod(kind.shape[:-1])
    some = random_stored(rng, kind.storage, (min(rows, RANDOM_ROWS), columns))
    return np.resize(some.reshape(-1).view(np.uint8), kind.storage.bytes_for((rows, columns)))


def torch_rates(shapes: Mapping[tuple[int, ...], int], rows: int) -> str:
    """The same products by torch, one after another."""
    try:
        import torch
    except ImportError:
        return ""
    if not torch.cuda.is_available():
        return ""
    rates = []
    for dtype in (torch.float32, torch.float16):
        seconds = 0.0
        for (N, K), count in shapes.items():
            x = torch.randn(rows, K, device="cuda", dtype=dtype)
            weight = torch.randn(N, K, device="cuda", dtype=dtype)
            times = []
            for _ in range(TORCH_REPEATS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(10):
                    torch.matmul(x, weight.T)
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) / 1e4)
            seconds += min(times) * count
        rates.append(
            f"{str(dtype)[6:]} {product_operations(shapes) * rows / seconds / 1e12:.1f} TFLOP/s "
            f"({seconds * 1e3:.2f} ms)"
        )
    torch.cuda.empty_cache()
    return f"; torch: {', '.join(rates)}"


if __name__ == "__main__":
    sys.exit(main())
