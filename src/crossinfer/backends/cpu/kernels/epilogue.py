"""What ends every kernel of linear: bias, gate, residual, and the store of the rows that exist.

    output[token, row] = act(gate[token, row]) · (y + bias[row]) + residual[token, row]

act is silu. The operands that are there decide the kernel's variant. Sums come from memory of the
kernel's own, so that the code for a token is there once, however many there are.
"""

from __future__ import annotations

import dataclasses

from crossinfer.backends.cpu.kernels.activation import silu
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import i32
from crossinfer.jit.value import Value

OPTIONAL = ("bias", "gate", "residual")


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """The pointers of the operands, by name, and the output's."""

    operands: dict[str, Pointer]
    output: Pointer
    rows: Value
    """N: the distance from one token's output to the next."""

    def store(
        self, k: KernelBuilder, sums: Pointer, lanes: int, row: Value, token: Value, tokens: Value
    ) -> None:
        """Finish `tokens` tokens from `token` on, of `lanes` rows from `row` on.

        `sums` is f32 [tokens][lanes].
        """
        mask = k.lane_numbers(lanes) < (self.rows - row).to(i32).splat(lanes)
        with k.range(0, tokens) as t:
            where = (token + t) * self.rows + row
            y = sums.vector(t * lanes, lanes)
            if "bias" in self.operands:
                y = y + self.operands["bias"].masked(row, mask)
            if "gate" in self.operands:
                gate = self.operands["gate"].masked(where, mask)
                y = y * silu(gate)
            if "residual" in self.operands:
                y = y + self.operands["residual"].masked(where, mask)
            self.output.store_masked(where, y, mask)
