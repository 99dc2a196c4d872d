"""16-bit weights in 12 bits: no bit is lost, and no product knows the difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.cpu.narrow_by_numpy import pack_halves, widened

from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.kernels import narrow_layout, packing
from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS, packed_size, tile_bytes, tile_count
from crossinfer.backends.cpu.kernels.linear import lower_linear
from crossinfer.backends.cpu.kernels.narrow_layout import PLAIN, RECORD
from crossinfer.backends.cpu.kernels.packing import pack, unpack_scalars
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.formats.blocks import Q8_0
from crossinfer.graph.op import float32
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.jit.target import Target, host_target, host_targets, short_float_target
from crossinfer.testing.native import guarded, run_dispatch, to_memory

STORAGES = pytest.mark.parametrize("storage", [DType.F16, DType.BF16], ids=lambda s: s.label)
Random = np.random.Generator


def born_short(rng: Random, shape: tuple[int, int], storage: DType, scale: float = 0.02) -> Array:
    """Numbers as checkpoints have them, uint16: bfloat16, whatever their storage."""
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
    bits = encode_scalars(values, DType.BF16)
    if storage is DType.BF16:
        return bits
    return encode_scalars(widened(bits, DType.BF16), storage).view(np.uint16)


def stored_bits(storage: DType, *values: float) -> Array:
    return encode_scalars(np.array(values, dtype=np.float32), storage).view(np.uint16)


def packed(bits: Array, storage: DType) -> Array:
    return np.concatenate(list(pack(bits, bits.shape, storage)))


def records(memory: Array, shape: tuple[int, int], storage: DType) -> Array:
    tiles = tile_count(shape[0], storage)
    return memory[tiles * tile_bytes(shape[1], storage) :].view(RECORD)


def is_narrow(bits: Array, storage: DType) -> list[bool]:
    return [r["exceptions"] != PLAIN for r in records(packed(bits, storage), bits.shape, storage)]


@st.composite
def weights(draw: st.DrawFn, storage: DType) -> Array:
    """Rows of any bits, or as in checkpoints, with or without numbers that do not fit."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.integers(1, 100)), draw(st.integers(1, 20)) * draw(st.sampled_from([8, 8, 3]))
    scale = 2.0 ** draw(st.integers(-20, 10))
    bits = born_short(rng, shape, storage, scale)
    special = np.concatenate(
        [
            stored_bits(storage, 0.0, -0.0, 1e-7, -3e-6, 40000.0, -(2.0**-14), 2.0**-24, 1.0),
            rng.integers(0, 0x7C00 if storage is DType.F16 else 0x7F80, 8).astype(np.uint16),
        ]
    )
    share = draw(st.sampled_from([0, 1 / 3000, 1 / 600, 1 / 100]))
    bits = np.where(rng.random(shape) < share, rng.choice(special, shape), bits)
    if draw(st.booleans()):
        start = draw(st.integers(0, shape[0]))
        bits[start : start + 32] = rng.integers(0, 1 << 16, bits[start : start + 32].shape)
    return bits.astype(np.uint16)


@STORAGES
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_bit_comes_back(storage: DType, data: st.DataObject) -> None:
    bits = data.draw(weights(storage))
    memory = packed(bits, storage)
    assert memory.size == packed_size(bits.shape, storage)
    assert unpack_scalars(memory, bits.shape, storage).tobytes() == bits.tobytes()
    assert memory.tobytes() == pack_halves(bits, storage).tobytes()


@pytest.mark.parametrize("target", host_targets(), ids=lambda target: target.name)
@STORAGES
def test_every_instruction_set_packs_alike(
    monkeypatch: pytest.MonkeyPatch, storage: DType, target: Target
) -> None:
    monkeypatch.setattr(packing, "host_target", lambda: target)
    monkeypatch.setattr(packing, "_packer", packing._packer.__wrapped__)
    rng = np.random.default_rng()
    bits = born_short(rng, (100, 136), storage)
    bits.reshape(-1)[:: int(rng.integers(600, 900))] = stored_bits(storage, -0.0)[0]
    bits[70:, :40] = rng.integers(0, 1 << 16, (30, 40))
    assert packed(bits, storage).tobytes() == pack_halves(bits, storage).tobytes()


@STORAGES
def test_what_checkpoints_hold_is_narrow(storage: DType) -> None:
    """Some numbers far from the others, zeros among them, change nothing; many do."""
    rng = np.random.default_rng()
    shape = 320, 896
    bits = born_short(rng, shape, storage)
    assert all(is_narrow(bits, storage))
    few = bits.copy()
    few[::32, ::100] = stored_bits(storage, 0.0)
    few[5::32, 3::300] = stored_bits(storage, 17.0)
    assert all(is_narrow(few, storage))
    bits[32:64, ::8] = 0
    assert is_narrow(bits, storage) == [number != 1 for number in range(10)]


def test_what_needs_more_bits_is_plain() -> None:
    rng = np.random.default_rng()
    full = (rng.standard_normal((64, 256)) * 0.02).astype(np.float16).view(np.uint16)
    assert not any(is_narrow(full, DType.F16))
    for value in (np.inf, np.nan):
        bits = born_short(rng, (64, 256), DType.BF16)
        bits[40, 7] = stored_bits(DType.BF16, value)[0]
        assert is_narrow(bits, DType.BF16) == [True, False]
    for scale in (1e-25, 1e6):  # a power that sums in its units might not bear
        assert not any(is_narrow(born_short(rng, (64, 256), DType.BF16, scale), DType.BF16))
    assert not any(is_narrow(born_short(rng, (64, 252), DType.BF16), DType.BF16))
    assert not any(is_narrow(np.zeros((64, 256), dtype=np.uint16), DType.BF16))


@STORAGES
def test_narrow_tiles_are_read_in_long_runs(storage: DType) -> None:
    """Without gaps but those between groups."""
    rng = np.random.default_rng()
    columns = 1024
    of_group = narrow_layout.group_tiles(columns)
    shape = SCALAR_ROWS * (2 * of_group + 1), columns
    found = records(packed(born_short(rng, shape, storage), storage), shape, storage)
    starts = found["start"].astype(int) * 64
    assert list(starts[::of_group]) == [g * of_group * columns * 64 for g in range(3)]
    sizes = np.diff(starts)[np.arange(1, 2 * of_group + 1) % of_group != 0]
    assert np.all(sizes < columns * 48 * 1.02)


# Products.


class Product:
    """A product of a weight, whose packed memory may be changed before it is made."""

    def __init__(self, target: Target, storage: DType, bits: Array, x: Array, fast: bool) -> None:
        self.operands = {
            "x": float32(*x.shape),
            "weight": Operand(bits.shape, storage, Role.WEIGHT),
            "output": float32(len(x), len(bits)),
        }
        short = short_float_target(target) if fast else None
        (self._lowering,) = lower_linear(
            self.operands,
            kernel_library(target),
            None if short is None else kernel_library(short),
        )
        sizes = self._lowering.scratch
        self._memory = {name: guarded(size) for name, size in sizes.items()}
        self._memory["x"] = to_memory(x, self.operands["x"])
        self._memory["output"] = guarded(4 * len(x) * len(bits))
        self.weight = self._memory["weight"] = to_memory(bits, self.operands["weight"])
        self.records = (
            records(self.weight, bits.shape, storage) if storage is not DType.F32 else None
        )

    def make(self) -> Array:
        for dispatch in self._lowering.dispatches:
            run_dispatch(dispatch, self._memory)
        return self._memory["output"].view(np.float32).reshape(self.operands["output"].shape)


@pytest.mark.parametrize("target", host_targets(), ids=lambda target: target.name)
@STORAGES
@pytest.mark.parametrize("T", [1, 3, 19])
def test_products_are_those_of_float32_weights(target: Target, storage: DType, T: int) -> None:
    """Bit for bit where there are no exceptions: a power of two rounds nothing."""
    rng = np.random.default_rng()
    bits = born_short(rng, (70, 520), storage)
    small = np.abs(widened(bits, storage)) < 2.0**-11
    bits[small] = stored_bits(storage, 2.0**-6)[0]
    x = rng.standard_normal((T, 520), dtype=np.float32)
    narrow = Product(target, storage, bits, x, fast=False)
    assert narrow.records is not None
    assert np.all(narrow.records["exceptions"] == 0)
    wide = Product(target, DType.F32, widened(bits, storage), x, fast=False)
    assert narrow.make().tobytes() == wide.make().tobytes()


def with_exceptions(rng: Random, storage: DType) -> Array:
    bits = born_short(rng, (70, 520), storage)
    # At even distances: by chance, one tile might have too many.
    places = np.arange(rng.integers(1500), bits.size, 1500)
    bits.reshape(-1)[places] = rng.choice(stored_bits(storage, 0.0, 17.0, -21.0, 1e-5), len(places))
    assert all(is_narrow(bits, storage))
    return bits


def error_of(product: Product, bits: Array, storage: DType, x: Array, fast: bool) -> float:
    weight = widened(bits, storage).astype(np.float64)
    if fast:
        weight, x = (widened(encode_scalars(v, DType.BF16), DType.BF16) for v in (weight, x))
    return row_error(product.make(), x.astype(np.float64) @ weight.astype(np.float64).T)


FAST = pytest.mark.parametrize(
    "fast",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                short_float_target(host_target()) is None, reason="no bfloat16 products here"
            ),
        ),
    ],
    ids=["exact", "fast"],
)


@FAST
@STORAGES
@pytest.mark.parametrize("T", [1, 19])
def test_faults_show(storage: DType, T: int, fast: bool) -> None:
    """A wrong power, lost exceptions, nibbles of the wrong word, tiles in each other's place."""
    rng = np.random.default_rng()
    bits = with_exceptions(rng, storage)
    x = rng.standard_normal((T, 520), dtype=np.float32)

    def product() -> Product:
        return Product(host_target(), storage, bits, x, fast)

    def error(made: Product) -> float:
        return error_of(made, bits, storage, x, fast)

    assert error(product()) <= Tolerance.F32.value
    for fault in ("power", "exceptions", "nibbles", "place"):
        made = product()
        assert made.records is not None
        first = made.records[0]
        words = made.weight[: 48 * 520].view(np.uint32).reshape(-1, 3, 32)
        match fault:
            case "power":
                first["power"] *= 2
            case "exceptions":
                assert first["exceptions"] > 0
                first["exceptions"] = 0
            case "nibbles":
                spare = np.uint32(0x7800_7800)
                low, high = words[:, 0] & spare, words[:, 1] & spare
                words[:, 0] ^= low ^ high
                words[:, 1] ^= low ^ high
            case "place":
                made.records[:2] = made.records[:2][::-1].copy()
        assert error(made) > 10 * Tolerance.F32.value, fault


@FAST
@STORAGES
@pytest.mark.parametrize("T", [1, 19])
def test_one_column_alone_comes_out_exactly(storage: DType, T: int, fast: bool) -> None:
    """Also the numbers in it that are exceptions, far below all others."""
    bits = born_short(np.random.default_rng(), (32, 1024), storage, 0.5)
    bits[:4, 8] = stored_bits(storage, 2.0**-24, -1.5 * 2.0**-22, 0.0, 60.0)
    if storage is DType.BF16:
        bits[4:6, 8] = stored_bits(storage, 1.5 * 2.0**-45, -(2.0**-100))
    assert is_narrow(bits, storage) == [True]
    x = np.zeros((T, 1024), dtype=np.float32)
    x[:, 8] = 3.0
    made = Product(host_target(), storage, bits, x, fast).make()
    assert np.array_equal(made, np.tile(3 * widened(bits, storage)[:, 8], (T, 1)))


@STORAGES
def test_a_device_tells_how_many_bytes_are_read(storage: DType) -> None:
    shape = 96, 520
    bits = born_short(np.random.default_rng(), shape, storage)
    bits[33, 7] = stored_bits(storage, 0.0)[0]
    bits[64:] |= 1 if storage is DType.F16 else 0
    with CpuDevice(threads=1) as device:
        buffer = device.upload(bits.tobytes(), shape, storage, Role.WEIGHT)
        read = device.bytes_read(buffer, shape, storage)
        last = 64 if storage is DType.F16 else 48  # bytes a column
        exceptions = records(packed(bits, storage), shape, storage)["exceptions"]
        assert exceptions[1] >= 1
        assert read == 520 * (48 + 48 + last) + 8 * exceptions[exceptions > 0].sum() + 3 * 12
        assert read < buffer.size_in_bytes
        blocks = device.alloc((32, 64), Q8_0, Role.WEIGHT)
        assert device.bytes_read(blocks, (32, 64), Q8_0) == blocks.size_in_bytes
