"""What ends every kernel of linear: bias, gate, residual, and the store of the rows that exist.

    output[token, row] = act(gate[token, row]) · (y + bias[row]) + residual[token, row]

act is silu. The operands that are there decide the kernel's variant; a gate may also be a second
product that the kernel made. Sums come from memory of the kernel's own, so that the code for a
token is there once, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.activation import silu
from crossinfer.core.records import record
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import i32
from crossinfer.jit.value import Value


@record
class Epilogue:
    """The pointers of the operands, by name, and the output's."""

    operands: dict[str, Pointer]
    output: Pointer
    rows: Value
    """N: the distance from one token's output to the next."""

    def expect(self, k: KernelBuilder, row: Value, token: Value, tokens: Value) -> None:
        """Fetch the output's cache lines while the products are made: a store would wait."""
        with k.range(0, tokens) as t:
            self.output.prefetch_for_write((token + t) * self.rows + row)

    def store(
        self,
        k: KernelBuilder,
        sums: Sequence[Pointer],
        lanes: int,
        row: Value,
        token: Value,
        tokens: Value,
    ) -> None:
        """Finish `tokens` tokens from `token` on, of `lanes` rows from `row` on.

        `sums` are f32 [tokens][lanes] each: the product, and the gate's if there is one.
        """
        mask = k.lane_numbers(lanes) < (self.rows - row).to(i32).splat(lanes)
        bias = self._bias("bias", row, mask)
        gate_bias = self._bias("gate_bias", row, mask)
        product, *gates = sums
        with k.range(0, tokens) as t:
            where = (token + t) * self.rows + row
            y = product.vector(t * lanes, lanes)
            if bias is not None:
                y = y + bias
            for made in gates:
                gate = made.vector(t * lanes, lanes)
                y = y * silu(gate if gate_bias is None else gate + gate_bias)
            if "gate" in self.operands:
                y = y * silu(self.operands["gate"].masked(where, mask))
            if "residual" in self.operands:
                y = y + self.operands["residual"].masked(where, mask)
            self.output.store_masked(where, y, mask)

    def _bias(self, name: str, row: Value, mask: Value) -> Value | None:
        return self.operands[name].masked(row, mask) if name in self.operands else None
