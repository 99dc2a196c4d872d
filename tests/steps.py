"""Runs a model's steps directly, below requests and scheduling."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.engine.batch import Batch, BatchLimits, Chunk
from crossinfer.engine.step import StepRunner
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model

CONTEXT = 160
LIMITS = BatchLimits(rows=64, sequences=4, logits_rows=64)


@contextlib.contextmanager
def step_runner(
    model: Model,
    devices: Sequence[Device],
    verdicts: VerdictStore | None = None,
    kv_dtype: DType = DType.F32,
    *,
    first_layers: int | None = None,
    stream_layers: bool = False,
) -> Iterator[StepRunner]:
    """A runner with room for a few short sequences; closes the devices too."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(device)
        runner = StepRunner(
            model,
            devices,
            verdicts or VerdictStore(None),
            context=CONTEXT,
            kv_blocks=40,
            kv_dtype=kv_dtype,
            limits=LIMITS,
            first_layers=first_layers,
            stream_layers=stream_layers,
        )
        stack.callback(runner.close)
        yield runner


def logits_of(runner: StepRunner, tokens: Sequence[int], cuts: Sequence[int] = ()) -> Array:
    """The logits after each token of one sequence, computed in chunks that end at `cuts`."""
    rows = []
    borders = [0, *cuts, len(tokens)]
    for start, end in itertools.pairwise(borders):
        blocks = range(1, 1 + (end + 15) // 16)
        chunk = Chunk(tokens[start:end], end, blocks, range(end - start))
        logits = runner.run(Batch((chunk,))).logits
        assert logits is not None
        rows.append(logits)
    return np.concatenate(rows)
