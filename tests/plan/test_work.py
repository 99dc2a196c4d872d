"""The work of a plan, against sums by hand."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.plan.devices import PlannedDevice
from tests.plan.graphs import HEAD_DIM, HIDDEN, VOCABULARY, small_model

from crossinfer.hal.limits import Products
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.fusion import PATTERNS
from crossinfer.plan.plan import make_plan
from crossinfer.plan.work import Work, count_work

LAYERS = 3
LAYER_WEIGHTS = HIDDEN * (HIDDEN + 2 * HEAD_DIM + HIDDEN + 3 * 64)
HEAD_WEIGHTS = VOCABULARY * HIDDEN


def work(rows: int, fusions: Collection[str] = ()) -> Work:
    device = PlannedDevice(fusions=fusions)
    return count_work(make_plan(small_model(LAYERS, rows), [device], VerdictStore(None)))


def test_weights_and_operations() -> None:
    found = work(rows=1)
    assert found.row_operations == 2 * LAYERS * LAYER_WEIGHTS
    assert found.head_operations == 2 * HEAD_WEIGHTS
    tensors = 7 * LAYERS + 1
    exact = 2 * (LAYERS * LAYER_WEIGHTS + HEAD_WEIGHTS)  # float16; each tensor ends aligned
    assert exact <= found.weight_bytes < exact + 256 * tensors
    assert found.products is Products.FLOAT


def test_attention() -> None:
    found = work(rows=1)
    query_heads = HIDDEN // HEAD_DIM
    assert found.pair_operations == LAYERS * query_heads * 2 * (HEAD_DIM + HEAD_DIM)
    assert found.position_bytes == LAYERS * 2 * HEAD_DIM * 2  # K and V of one head, float16


def test_rows_do_not_count() -> None:
    assert work(rows=1) == work(rows=7)


@pytest.mark.parametrize("fusions", [*([name] for name in PATTERNS), list(PATTERNS)])
def test_fused_ops_do_the_same_work(fusions: list[str]) -> None:
    assert work(rows=1, fusions=fusions) == work(rows=1)


def test_prefill_and_decode() -> None:
    found = Work(1000, 10, 3, 2, 7, Products.INTEGER)
    # Positions 0, 1 and 2 attend to 1, 2 and 3 positions.
    assert found.prefill_operations(3) == 3 * 10 + 3 + 2 * (1 + 2 + 3)
    assert found.decode_bytes(4) == 1028
