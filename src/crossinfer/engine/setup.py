"""What is decided before a model is loaded: context, KV cache type, devices, plan, and runner."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import RequestError
from crossinfer.core.progress import Progress
from crossinfer.core.settings import PRECISIONS, read_settings
from crossinfer.core.shapes import ceil_div
from crossinfer.engine.batch import step_limits
from crossinfer.engine.buckets import step_shape
from crossinfer.engine.device_row import AUTO, Choice, DeviceRow, Devices, open_row
from crossinfer.engine.recovery import RecoverableRunner
from crossinfer.engine.step import StepRunner
from crossinfer.engine.verification import Verifier
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.graph import Graph
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model
from crossinfer.plan.fit import fit_split
from crossinfer.plan.plan import Plan, make_plan

if TYPE_CHECKING:
    from crossinfer.engine.slices import SliceGate

DEFAULT_CONTEXT = 4096


def choose_context(model: Model, asked: int | None) -> int:
    """The longest conversation in tokens. Raises RequestError if `asked` is out of range."""
    made_for = model.config.context
    if asked is None:
        return min(made_for, DEFAULT_CONTEXT)
    if not 1 <= asked <= made_for:
        raise RequestError(
            f"A context of {asked} tokens was asked for; this model takes 1 to {made_for}."
        )
    return asked


def choose_precision(asked: str | None) -> str:
    """The precision asked for, or that of the settings. Raises RequestError."""
    precision = read_settings().precision if asked is None else asked
    if precision not in PRECISIONS:
        raise RequestError(f"precision is {precision}; it must be {' or '.join(PRECISIONS)}.")
    return precision


def choose_kv_dtype(model: Model, asked: str | None) -> DType:
    """How keys and values are kept. Raises RequestError for an unknown name."""
    if asked is None:
        return DType.F32 if model.is_float32 else DType.F16
    names = {DType.F16.label: DType.F16, DType.F32.label: DType.F32}
    if asked not in names:
        raise RequestError(f"The KV cache type {asked!r} is unknown; f16 and f32 are possible.")
    return names[asked]


def open_devices(
    model: Model,
    wanted: Devices,
    threads: int | None,
    *,
    context: int | None,
    gpu_layers: int | None,
    stream_layers: bool,
    kv_dtype: DType,
    verdicts: VerdictStore,
    verifier: Verifier,
) -> DeviceRow:
    """The devices for a model, opened where they are names; see `open_row` and `open_automatic`.

    Raises DeviceError, RequestError, PlanError.
    """

    def plan_on(devices: Sequence[Device]) -> Plan:
        return preview_plan(
            model,
            devices,
            context,
            gpu_layers=gpu_layers,
            stream_layers=stream_layers,
            kv_dtype=kv_dtype,
            verdicts=verdicts,
        )

    def automatic(threads: int | None) -> Choice:
        from crossinfer.engine.automatic import open_automatic  # whoever names devices needs none

        return open_automatic(threads, plan_on, verdicts, verifier)

    row = open_row(wanted, threads, automatic)
    # `auto` knows what a driver says of its memory, but other programs take of it too.
    asked_for = gpu_layers is not None or stream_layers or wanted not in (AUTO, [AUTO])
    row.may_start_without = not asked_for
    return row


def preview_plan(
    model: Model,
    devices: Sequence[Device],
    context: int | None = None,
    *,
    gpu_layers: int | None = None,
    stream_layers: bool = False,
    kv_dtype: DType | None = None,
    verdicts: VerdictStore | None = None,
) -> Plan:
    """The plan of a step that generates one token, made without loading weights.

    Raises FormatError, PlanError, RequestError.
    """
    positions, verdicts = choose_context(model, context), verdicts or VerdictStore.default()
    kv_dtype = kv_dtype or choose_kv_dtype(model, None)

    def graph(rows: int, sequences: int, logits_rows: int) -> Graph:
        shape = step_shape(
            rows=rows,
            sequences=sequences,
            logits_rows=logits_rows,
            context=positions,
            kv_blocks=ceil_div(positions, BLOCK_TOKENS),
            kv_dtype=kv_dtype,
            device=devices[0],
        )
        return model.graph(shape)

    limits = step_limits(devices)
    split = fit_split(
        lambda: graph(limits.rows, limits.sequences, limits.logits_rows),
        model.config.layers,
        devices,
        verdicts,
        first_layers=gpu_layers,
        stream=stream_layers,
    )
    return make_plan(graph(1, 1, 1), devices, verdicts, split=split)


def make_runner(
    devices: Sequence[Device],
    progress: Progress,
    *,
    model: Model,
    verdicts: VerdictStore,
    verifier: Verifier,
    context: int,
    kv_blocks: int,
    kv_dtype: DType,
    may_round: bool,
    step_rows: int | None,
    gate: SliceGate | None,
    asked_devices: int,
    gpu_layers: int | None,
    stream_layers: bool,
) -> StepRunner:
    """The runner of a model on what is left of the `asked_devices`. Raises PlanError, DeviceError.

    When a device was lost for good, the layers are divided anew among the others. `may_round` is
    the precision "fast"; see `StepRunner` for the rest.
    """
    for device in devices if may_round else ():
        device.allow_rounding()
    return StepRunner(
        model,
        devices,
        verdicts,
        context=context,
        kv_blocks=kv_blocks,
        kv_dtype=kv_dtype,
        limits=step_limits(devices, step_rows),
        first_layers=gpu_layers if len(devices) == asked_devices else None,
        stream_layers=stream_layers,
        verifier=verifier,
        gate=gate,
        progress=progress,
    )


def open_runner(
    model: Model,
    wanted: Devices,
    threads: int | None,
    *,
    context: int,
    kv_dtype: str | None,
    precision: str | None,
    gpu_layers: int | None,
    stream_layers: bool,
    step_rows: int | None,
    gate: SliceGate | None,
    progress: Progress,
) -> RecoverableRunner:
    """A runner of `model` on the devices `wanted`, which it closes; weights are on their way.

    The options are those of LLM. Raises FormatError, PlanError, RequestError, DeviceError.
    """
    verdicts = VerdictStore.default()
    verifier = Verifier(verdicts, enabled=read_settings().verify, progress=progress)
    kv_type = choose_kv_dtype(model, kv_dtype)
    may_round = choose_precision(precision) == "fast"
    row = open_devices(
        model,
        wanted,
        threads,
        context=context,
        gpu_layers=gpu_layers,
        stream_layers=stream_layers,
        kv_dtype=kv_type,
        verdicts=verdicts,
        verifier=verifier,
    )
    make = functools.partial(
        make_runner,
        model=model,
        verdicts=verdicts,
        verifier=verifier,
        context=context,
        kv_blocks=ceil_div(context, BLOCK_TOKENS),
        kv_dtype=kv_type,
        may_round=may_round,
        step_rows=step_rows,
        gate=gate,
        asked_devices=len(row.devices),
        gpu_layers=gpu_layers,
        stream_layers=stream_layers,
    )
    return RecoverableRunner(row, make, verdicts, verifier, progress)
