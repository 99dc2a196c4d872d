"""What is decided before a model is loaded: context, KV cache type, devices, and the plan."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import RequestError
from crossinfer.core.settings import read_settings
from crossinfer.core.shapes import ceil_div
from crossinfer.engine.step import step_shape
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.hal.device import Device
from crossinfer.hal.registry import open_device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model
from crossinfer.plan.plan import Plan, make_plan

DEFAULT_CONTEXT = 4096

Devices = str | Device | Sequence[str | Device]


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


def choose_kv_dtype(model: Model, asked: str | None) -> DType:
    """How keys and values are kept. Raises RequestError for an unknown name."""
    if asked is None:
        return DType.F32 if model.is_float32 else DType.F16
    names = {DType.F16.label: DType.F16, DType.F32.label: DType.F32}
    if asked not in names:
        raise RequestError(f"The KV cache type {asked!r} is unknown; f16 and f32 are possible.")
    return names[asked]


def open_devices(wanted: Devices, threads: int | None, stack: contextlib.ExitStack) -> list[Device]:
    """The devices, those that are opened here closed by `stack`.

    `auto` stands for what the setting `device` names, one or several with commas between.
    Raises DeviceError, RequestError.
    """
    if threads is not None and threads < 1:
        raise RequestError(f"threads is {threads}; it must be at least 1.")
    settings = read_settings()
    devices = []
    for device in [wanted] if isinstance(wanted, str | Device) else wanted:
        if isinstance(device, Device):
            devices.append(device)
            continue
        for name in settings.device.split(",") if device == "auto" else [device]:
            opened = open_device(name.strip(), threads=threads or settings.threads)
            devices.append(stack.enter_context(opened))
    return devices


def preview_plan(model: Model, devices: Sequence[Device], context: int | None = None) -> Plan:
    """The plan of a step that generates one token, made without loading weights.

    Raises FormatError, PlanError, RequestError.
    """
    positions = choose_context(model, context)
    shape = step_shape(
        rows=1,
        sequences=1,
        logits_rows=1,
        context=positions,
        kv_blocks=ceil_div(positions, BLOCK_TOKENS),
        kv_dtype=choose_kv_dtype(model, None),
    )
    return make_plan(model.graph(shape), devices, VerdictStore.default())
