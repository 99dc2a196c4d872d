"""The plan of a model on devices, made without loading its weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from crossinfer.core.settings import read_settings
from crossinfer.engine.setup import (
    choose_kv_dtype,
    choose_precision,
    open_devices,
    preview_plan,
)
from crossinfer.engine.verification import Verifier
from crossinfer.formats.model_file import ModelFile
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import load_model
from crossinfer.plan.explain import device_rows, explain, split_sentence, step_rows


@dataclasses.dataclass(frozen=True)
class PlanPreview:
    """A plan as text, and as values that JSON has."""

    text: str
    json: dict[str, Any]


def preview(
    file: ModelFile,
    devices: Sequence[str],
    context: int | None,
    gpu_layers: int | None,
    stream_layers: bool,
) -> PlanPreview:
    """What would run where when one token is generated.

    Raises FormatError, PlanError, RequestError, DeviceError.
    """
    model = load_model(file)
    verdicts = VerdictStore.default()
    row = open_devices(
        model,
        devices,
        None,
        context=context,
        gpu_layers=gpu_layers,
        stream_layers=stream_layers,
        kv_dtype=choose_kv_dtype(model, None),
        verdicts=verdicts,
        verifier=Verifier(verdicts, enabled=read_settings().verify),
    )
    with contextlib.closing(row):
        opened = row.devices
        for device in opened if choose_precision(None) == "fast" else ():
            device.allow_rounding()
        plan = preview_plan(
            model,
            opened,
            context,
            gpu_layers=gpu_layers,
            stream_layers=stream_layers,
            verdicts=verdicts,
        )
        return PlanPreview(
            "\n".join((*model.notes, *row.reasons, explain(plan))),
            {
                "devices": [dataclasses.asdict(row) for row in device_rows(plan)],
                "layers": [opened[number].info.name for number in plan.split.layers],
                "streamed": sorted(plan.split.streamed),
                "placement": split_sentence(plan),
                "steps": [dataclasses.asdict(row) for row in step_rows(plan)],
            },
        )
