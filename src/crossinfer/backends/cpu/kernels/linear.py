"""linear, gated_linear and qkv_linear on this backend: which kernels, and their constants.

First x becomes tiles of tokens, once for all weights that read the same tiles; then come the
products with tiles of the weights. One token and scalar weights need no first dispatch.

`short` is the library of the kernels that round to bfloat16; with it, 16-bit weights take these.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence

from crossinfer.backends.cpu.kernels.activation_tile import (
    QUANTIZED,
    activation_tile,
    preparation_grid,
)
from crossinfer.backends.cpu.kernels.layout import CHUNK_COLUMNS, tile_count
from crossinfer.backends.cpu.library import KernelLibrary, generator
from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.activations import SHORT, Rounding
from crossinfer.formats.blocks import BlockFormat, StorageType
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering, Operand
from crossinfer.jit.target import Target

Operands = Mapping[str, Operand]

OPTIONAL = ("bias", "gate", "residual")
BIASES = ("bias", "gate_bias")
"""The optional operands of a kernel that makes the gate itself."""
ROUNDED = (DType.F16, DType.BF16)
"""What `short` rounds to bfloat16."""
PRODUCT_CONSTANTS = "<4i"
"""T, N, steps (blocks or columns of a row), token tiles."""

_build_linear = generator("linear_kernel", "build_linear")
_build_gated_linear = generator("linear_kernel", "build_gated_linear")
_build_quantize = generator("activations", "build_quantize")
_build_arrange = generator("activations", "build_arrange")
_build_arrange_pairs = generator("linear_bf16", "build_arrange_pairs")


def lower_linear(
    operands: Operands, kernels: KernelLibrary, short: KernelLibrary | None = None
) -> Sequence[Lowering]:
    """The one way to run it; none if no weight has such a storage."""
    products = _Products(operands, Linear.stored, kernels, short)
    if not products.are_possible:
        return ()
    given = {name: name for name in OPTIONAL if name in operands}
    products.add("weight", given, "output")
    return (products.lowering(),)


def lower_qkv_linear(
    operands: Operands, kernels: KernelLibrary, short: KernelLibrary | None = None
) -> Sequence[Lowering]:
    """Three products of the same activations; none where `linear`s had better do it."""
    products = _Products(operands, QkvLinear.stored, kernels, short)
    if not products.are_possible:
        return ()
    for name in "qkv":
        given = {"bias": f"{name}_bias"} if f"{name}_bias" in operands else {}
        products.add(f"{name}_weight", given, name)
    return (products.lowering(),)


def lower_gated_linear(
    operands: Operands, kernels: KernelLibrary, short: KernelLibrary | None = None
) -> Sequence[Lowering]:
    """One kernel for both products if their storages agree; else the gate goes through memory."""
    products = _Products(operands, GatedLinear.stored, kernels, short)
    if not products.are_possible:
        return ()
    biases = {"bias": "up_bias", "gate_bias": "gate_bias"}
    given = {name: operand for name, operand in biases.items() if operand in operands}
    if operands["gate_weight"].storage == operands["up_weight"].storage:
        products.add_gated(given)
    else:
        gate_bias = {"bias": given.pop("gate_bias")} if "gate_bias" in given else {}
        products.add_intermediate("gate_weight", gate_bias, "gate")
        products.add("up_weight", given | {"gate": "gate"}, "output")
    return (products.lowering(),)


def tokens_at_once(rows: int, target: Target) -> int:
    """Tokens of a tile: a power of two, as many as the registers hold the sums of."""
    most = {512: 16, 256: 8}.get(target.vector_bits, 4)
    tokens = 1
    while tokens < min(rows, most):
        tokens *= 2
    return tokens


class _Products:
    """The dispatches of products of one x, as they are put together."""

    def __init__(
        self,
        operands: Operands,
        weights: Sequence[str],
        kernels: KernelLibrary,
        short: KernelLibrary | None,
    ) -> None:
        self._operands = operands
        self._weights = weights
        self._kernels = kernels
        self._short = short
        self._tokens = tokens_at_once(operands["x"].shape[0], kernels.target)
        self._storages = [operands[name].storage for name in weights]
        self._roundings = {self._rounding(storage) for storage in self._storages}
        self._preparations: dict[str, LoweredDispatch] = {}
        self._products: list[LoweredDispatch] = []
        self._scratch: dict[str, int] = {}

    @property
    def are_possible(self) -> bool:
        """Whether there are kernels, and all of them round x alike. None have a folded norm."""
        has_norm = "norm_weight" in self._operands
        return DType.I32 not in self._storages and len(self._roundings) == 1 and not has_norm

    def lowering(self) -> Lowering:
        dispatches = (*self._preparations.values(), *self._products)
        (rounding,) = self._roundings
        quantized: dict[str, Rounding] = {} if rounding is None else {"x": rounding}
        if rounding is SHORT:
            quantized |= dict.fromkeys(self._weights, SHORT)
        return Lowering(dispatches, self._scratch, quantized)

    def _rounding(self, storage: StorageType) -> Rounding | None:
        """What the kernels for a weight do to x."""
        if isinstance(storage, BlockFormat):
            return QUANTIZED
        return SHORT if self._short is not None and storage in ROUNDED else None

    def _library(self, storage: StorageType) -> KernelLibrary:
        rounds_to_short = self._rounding(storage) is SHORT
        return self._short if self._short is not None and rounds_to_short else self._kernels

    def add(self, weight: str, optional: Mapping[str, str], output: str) -> None:
        """The product with a weight; `optional` tells the epilogue's operands by their roles."""
        storage = self._operands[weight].storage
        self._add("linear", _build_linear, storage, (weight,), optional, output)

    def add_gated(self, biases: Mapping[str, str]) -> None:
        """The products with up_weight and gate_weight, whose storages are the same."""
        storage, weights = self._operands["up_weight"].storage, ("up_weight", "gate_weight")
        self._add("gated_linear", _build_gated_linear, storage, weights, biases, "output")

    def add_intermediate(self, weight: str, optional: Mapping[str, str], name: str) -> None:
        """As `add`, into scratch memory of that name."""
        T, N = self._operands["x"].shape[0], self._operands[weight].shape[0]
        self._scratch[name] = DType.F32.bytes_for((T, N))
        self.add(weight, optional, name)

    def _add(
        self,
        family: str,
        build: Callable[..., str],
        storage: StorageType,
        weights: Sequence[str],
        optional: Mapping[str, str],
        output: str,
    ) -> None:
        roles = tuple(role for role in (*OPTIONAL, *BIASES[1:]) if role in optional)
        tokens, kernels = self._tokens, self._library(storage)
        tags = (*(() if kernels is self._kernels else ("bf16",)), *roles, str(tokens))
        symbol = "_".join((family, storage.label, *tags))
        T, columns = self._operands["x"].shape
        N = self._operands[weights[0]].shape[0]
        steps = columns // storage.block_elements if isinstance(storage, BlockFormat) else columns
        token_tiles = ceil_div(T, tokens)
        inputs = (self._activations(storage), *weights, *(optional[role] for role in roles))
        make = functools.partial(build, symbol, storage=storage, tokens=tokens, optional=roles)
        name = f"{family}[{storage.label}].{'.'.join(tags)}"
        self._products.append(
            LoweredDispatch(
                kernels.get(name, symbol, lambda target: make(target=target)),
                (*(Argument(name, Access.READ) for name in inputs), Argument(output, Access.WRITE)),
                struct.pack(PRODUCT_CONSTANTS, T, N, steps, token_tiles),
                (token_tiles, tile_count(N, storage), 1),
            )
        )

    def _activations(self, storage: StorageType) -> str:
        """The operand or scratch memory that a weight's kernel reads; prepared once."""
        x, tokens = self._operands["x"], self._tokens
        tiles = ceil_div(x.shape[0], tokens)
        if isinstance(storage, BlockFormat):
            tile = activation_tile(storage, tokens)
            sums = f"sums{tile.groups}" if tile.has_offsets else f"zero{tile.zero}x{tile.groups}"
            name = f"quantize_{sums}_{tokens}"
            size = x.shape[1] // CHUNK_COLUMNS * tile.size_in_bytes
            build: Callable[..., str] = functools.partial(_build_quantize, tile=tile)
        elif self._rounding(storage) is SHORT:
            name = f"arrange_pairs_{tokens}"
            size = DType.I32.bytes_for((ceil_div(x.shape[1], 2), tokens))
            build = functools.partial(_build_arrange_pairs, tokens=tokens)
        elif tokens == 1:
            return "x"
        else:
            name = f"arrange_{tokens}"
            size = DType.F32.bytes_for((x.shape[1], tokens))
            build = functools.partial(_build_arrange, tokens=tokens)
        if name not in self._preparations:
            grid = preparation_grid(x.shape[0], x.shape[1], tokens)
            self._scratch[name] = tiles * size
            self._preparations[name] = LoweredDispatch(
                self._library(storage).get(
                    name.replace("_", "."), name, functools.partial(build, name)
                ),
                (Argument("x", Access.READ), Argument(name, Access.WRITE)),
                struct.pack("<3i", *x.shape, grid[0]),
                grid,
            )
        return name
