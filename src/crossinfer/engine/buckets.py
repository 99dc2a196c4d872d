"""Buckets: the sizes that steps are planned for, so that few plans do for all batches."""

from __future__ import annotations

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceKind
from crossinfer.models.decoder import StepShape

_LEAST_BETWEEN = 48
"""Below it the padding that a bucket between two powers of two saves is a few milliseconds."""


def step_shape(
    *,
    rows: int,
    sequences: int,
    logits_rows: int,
    context: int,
    kv_blocks: int,
    kv_dtype: DType,
    device: Device,
) -> StepShape:
    """The bucket of a step with these sizes; `kv_blocks` does not count the padding block.

    `device` is the one that has most of the work.
    """
    return StepShape(
        rows=_row_bucket(rows, device),
        sequences=_bucket(sequences),
        table_blocks=ceil_div(context, BLOCK_TOKENS),
        logits_rows=_bucket(logits_rows),
        kv_blocks=kv_blocks + 1,
        kv_dtype=kv_dtype,
        positions=context,
    )


def _row_bucket(rows: int, device: Device) -> int:
    """The next power of two; on a CPU three quarters of it where that is enough, from 48 on.

    Padding rows are computed like others. A CPU takes longer for them in a few steps than to
    plan and record another bucket once; a GPU does not.
    """
    whole = _bucket(rows)
    between = 3 * whole // 4
    is_enough = max(rows, _LEAST_BETWEEN) <= between
    return between if is_enough and device.info.kind is DeviceKind.CPU else whole


def _bucket(size: int) -> int:
    """The next power of two; 0 stays 0."""
    return 1 << (size - 1).bit_length() if size else 0
