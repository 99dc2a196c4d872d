"""The block pool: nothing handed out twice, nothing lost, the padding block never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossinfer.engine.kv_cache import BlockPool
from crossinfer.graph.batch import BLOCK_TOKENS, PADDING_BLOCK


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(1, 200)))),
)
def test_blocks_are_owned_once(size: int, moves: list[tuple[int, int | None]]) -> None:
    """Each move grows one of five owners to a number of tokens, or (None) releases it."""
    pool = BlockPool(size)
    owners: list[list[int]] = [[] for _ in range(5)]
    for owner, tokens in moves:
        blocks = owners[owner]
        before = list(blocks)
        if tokens is None:
            pool.release(blocks)
            assert blocks == []
        elif pool.extend(blocks, tokens):
            assert blocks[: len(before)] == before
            assert len(blocks) >= tokens / BLOCK_TOKENS
            assert len(blocks) == max(len(before), -(-tokens // BLOCK_TOKENS))
        else:
            assert blocks == before
            assert -(-tokens // BLOCK_TOKENS) - len(before) > pool.free
        owned = [block for owner_blocks in owners for block in owner_blocks]
        assert len(owned) == len(set(owned)) == size - pool.free
        assert PADDING_BLOCK not in owned
        assert all(1 <= block <= size for block in owned)
