"""What a Vulkan device can do, in one run: every kernel case, and the speed of the basics.

    python benchmarks/gpu_smoke.py [--index 0] [--megabytes 2048] [--no-verify]

Prints the device; pass or fail of every kernel case against its float64 meaning, by op; the rate at
which matrix-vector products read their weights, alone and in a chain with a barrier after each
(`GB/s`, counting weights only); the time of a tiny dispatch with a barrier; upload and download
rates; and what a replayed step costs on the host. Needs no network and no model. Shaders must have
been compiled before (`python -m crossinfer.kernels.build`); `CROSSINFER_CACHE` says where they are.
Exits with 1 if a case failed, with 2 if there is no device.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import Counter

import numpy as np

from crossinfer.backends import vulkan
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceError
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Dispatch, Lowering, OpDescription, Operand
from crossinfer.hal.recording import Recording
from crossinfer.verify.cases import all_cases
from crossinfer.verify.runner import run_case

STORAGES: dict[str, StorageType] = {
    storage.label: storage for storage in (DType.F16, DType.F32, *BLOCK_FORMATS)
}
READ_FORMATS = ("f16", "q8_0", "q4_k")
COLUMNS = 4096
CHAIN = 24
REPEATS = 20


def main() -> int:
    options = parse()
    found = vulkan.list_devices()
    for info in found:
        print(f"{info.name}: {info.kind.value}, {info.description}, {info.driver}")
    if options.index >= len(found):
        print(f"There is no Vulkan device {options.index} here.")
        return 2
    with vulkan.open_vulkan(options.index) as device:
        limits = device.native.physical.limits
        print(
            f"\nDevice {device.info.name}: {device.info.memory_bytes} bytes of memory, queue "
            f"family {device.native.queue_family}, views of {limits.maxStorageBufferRange} bytes, "
            f"allocations of {device.native.physical.max_allocation}"
        )
        failed = 0 if options.no_verify else verify(device)
        for label in READ_FORMATS:
            attempt(
                f"read {label}", lambda label=label: read_rate(device, label, options.megabytes)
            )
        attempt("chain", lambda: chain_rate(device, options.megabytes))
        attempt("barrier", lambda: tiny_dispatch(device))
        attempt("copies", lambda: copy_rates(device))
        attempt("host", lambda: host_time(device))
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--index", type=int, default=0, help="the device's number in the list")
    parser.add_argument("--megabytes", type=int, default=2048, help="weights that are read")
    parser.add_argument("--no-verify", action="store_true")
    return parser.parse_args()


def attempt(what: str, measure: object) -> None:
    """Print what goes wrong, and go on with the next."""
    assert callable(measure)
    try:
        measure()
    except DeviceError as error:
        print(f"{what}: {error}")


def verify(device: Device) -> int:
    """The number of failures."""
    rng = np.random.default_rng(20)
    passed, failed, without = Counter[str](), Counter[str](), Counter[str]()
    started = time.perf_counter()
    for case in all_cases():
        outcomes = run_case(device, case, rng)
        without[case.op.name] += not outcomes
        for outcome in outcomes:
            (passed if outcome.passed else failed)[case.op.name] += 1
            if not outcome.passed:
                print(f"FAILED {', '.join(outcome.kernels)}: {outcome.reason}")
        if device.lost is not None:
            print(f"LOST at {case.name}: {device.lost}")
            break
    for op in sorted(passed | failed | without):
        print(f"{op:12} {passed[op]:4} passed {failed[op]:4} failed {without[op]:4} without kernel")
    print(f"verified in {time.perf_counter() - started:.1f} s")
    return failed.total()


class Work:
    """Buffers of a benchmark, by operand."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.buffers: list[Buffer] = []

    def alloc(self, operand: Operand) -> View:
        """Zeros would be a special case of the arithmetic; what is in memory is not."""
        buffer = self.device.alloc(operand.shape, operand.storage, operand.role)
        self.buffers.append(buffer)
        return buffer.view()

    def dispatches(
        self, op: OpDescription, operands: dict[str, Operand], **given: View
    ) -> tuple[Dispatch, ...]:
        lowering = first(self.device, op, operands)
        views = {name: given.get(name) or self.alloc(kind) for name, kind in operands.items()}
        for name, size in lowering.scratch.items():
            views[name] = self.alloc(Operand((size // 4 + 1,), DType.I32))
        return lowering.bind(views)

    def free(self) -> None:
        for buffer in self.buffers:
            buffer.free()
        self.buffers.clear()


def first(device: Device, op: OpDescription, operands: dict[str, Operand]) -> Lowering:
    found = device.lower(op, operands)
    if not found:
        raise DeviceError(f"no kernel for {op.name} of {', '.join(map(str, operands.values()))}")
    return found[0]


def product(rows: int, storage: StorageType) -> dict[str, Operand]:
    return {
        "x": float32(1, COLUMNS),
        "weight": Operand((rows, COLUMNS), storage, Role.WEIGHT),
        "output": float32(1, rows),
    }


def read_rate(device: Device, label: str, megabytes: int) -> None:
    """One product over all the memory: nothing but the kernel's inner loop counts."""
    storage, work = STORAGES[label], Work(device)
    rows = (megabytes << 20) // storage.bytes_for((COLUMNS,))
    operands = product(rows, storage)
    size = device.packed_size(operands["weight"].shape, storage, Role.WEIGHT)
    try:
        seconds = device_seconds(device, work.dispatches(Linear(), operands))
    finally:
        work.free()
    print(
        f"read {label}: {size / seconds / 1e9:.0f} GB/s ({size >> 20} MB in {seconds * 1e3:.3f} ms)"
    )


def chain_rate(device: Device, megabytes: int) -> None:
    """Square products, each of which reads what the one before wrote."""
    work = Work(device)
    operands = product(COLUMNS, DType.F16)
    size = device.packed_size(operands["weight"].shape, DType.F16, Role.WEIGHT)
    vectors = [work.alloc(float32(1, COLUMNS)) for _ in range(2)]
    dispatches: list[Dispatch] = []
    for number in range(min(CHAIN, max(2, (megabytes << 20) // size))):
        x, output = vectors[number % 2], vectors[1 - number % 2]
        dispatches += work.dispatches(Linear(), operands, x=x, output=output)
    seconds = device_seconds(device, tuple(dispatches))
    count = len(dispatches)
    work.free()
    print(
        f"chain of {count} f16 {COLUMNS}x{COLUMNS}: {size * count / seconds / 1e9:.0f} GB/s, "
        f"{seconds / count * 1e6:.2f} us each"
    )


def tiny_dispatch(device: Device) -> None:
    work = Work(device)
    x = float32(1, 64)
    a, b = work.alloc(x), work.alloc(x)
    operands = {"gate": x, "up": x, "output": x}
    dispatches: list[Dispatch] = []
    for number in range(200):
        source, target = (a, b) if number % 2 == 0 else (b, a)
        dispatches += work.dispatches(Swiglu(), operands, gate=source, up=source, output=target)
    seconds = device_seconds(device, tuple(dispatches)) / len(dispatches)
    work.free()
    print(f"a tiny dispatch and a barrier: {seconds * 1e6:.2f} us")


def copy_rates(device: Device) -> None:
    data = np.random.default_rng(1).integers(0, 256, 256 << 20, dtype=np.uint8)
    started = time.perf_counter()
    buffer = device.upload(data, (data.nbytes // 4,), DType.I32)
    device.download(buffer.view(0, 4))
    uploaded = time.perf_counter()
    found = device.download(buffer)
    ended = time.perf_counter()
    same = found == data.tobytes()
    buffer.free()
    up, down = data.nbytes / (uploaded - started), data.nbytes / (ended - uploaded)
    print(f"upload {up / 1e9:.1f} GB/s, download {down / 1e9:.1f} GB/s, same bytes: {same}")


def host_time(device: Device) -> None:
    """A step of 170 dispatches with parameters, replayed, and a download of four bytes."""
    work = Work(device)
    x = float32(1, 64)
    operands = {"gate": x, "up": x, "output": x}
    parameters = device.alloc((256,), DType.I32)
    recorder = device.recorder(parameters)
    vectors = [work.alloc(x) for _ in range(171)]
    for source, target in itertools.pairwise(vectors):
        for dispatch in work.dispatches(Swiglu(), operands, gate=source, up=source, output=target):
            recorder.dispatch(dispatch)
    started = time.perf_counter()
    recording = recorder.finish()
    print(f"recording 170 dispatches: {(time.perf_counter() - started) * 1e3:.1f} ms")
    submits, waits, downloads = [], [], []
    for _ in range(200):
        t0 = time.perf_counter()
        fence = device.submit(recording, bytes(512))
        t1 = time.perf_counter()
        fence.wait()
        t2 = time.perf_counter()
        device.download(View(vectors[-1].buffer, 0, 4))
        t3 = time.perf_counter()
        submits.append(t1 - t0)
        waits.append(t2 - t1)
        downloads.append(t3 - t2)
    parts = (("submit", submits), ("wait", waits), ("download of 4 bytes", downloads))
    print("host: " + ", ".join(f"{n} {statistics.median(t) * 1e6:.1f} us" for n, t in parts))
    parameters.free()
    work.free()


def device_seconds(device: Device, dispatches: tuple[Dispatch, ...]) -> float:
    """The shortest time of some runs, on the device's clock."""
    timer = device.timer(2)
    recorder = device.recorder()
    recorder.timestamp(timer, 0)
    for dispatch in dispatches:
        recorder.dispatch(dispatch)
    recorder.timestamp(timer, 1)
    recording: Recording = recorder.finish()
    times = []
    for _ in range(REPEATS):
        device.submit(recording).wait()
        times.append(timer.elapsed(0, 1))
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
