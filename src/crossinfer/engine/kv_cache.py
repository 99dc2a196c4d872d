"""The paged KV cache's bookkeeping: which blocks are free. The blocks themselves lie on devices."""

from __future__ import annotations

from crossinfer.core.shapes import ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS, PADDING_BLOCK


class BlockPool:
    """Blocks 1 … `blocks`; block 0 takes the writes of padding rows and is never handed out."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        first = PADDING_BLOCK + 1
        self._free = list(range(first + blocks - 1, first - 1, -1))

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    def extend(self, owned: list[int], tokens: int) -> bool:
        """Add blocks to `owned` until it can hold `tokens`; False, with none taken, if too few."""
        missing = ceil_div(tokens, BLOCK_TOKENS) - len(owned)
        if missing > self.free:
            return False
        owned.extend(self._free.pop() for _ in range(missing))
        return True

    def release(self, owned: list[int]) -> None:
        """Take all of `owned` back and empty it."""
        self._free.extend(reversed(owned))
        owned.clear()
