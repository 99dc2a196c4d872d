"""The plan of a model on devices, made without loading its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from crossinfer.engine.setup import open_devices, preview_plan
from crossinfer.formats.model_file import ModelFile
from crossinfer.models.model import load_model
from crossinfer.plan.explain import explain


def explain_plan(file: ModelFile, devices: Sequence[str], context: int | None) -> str:
    """What would run where when one token is generated.

    Raises FormatError, PlanError, RequestError, DeviceError.
    """
    with contextlib.ExitStack() as stack:
        opened = open_devices(devices, None, stack)
        model = load_model(file)
        return "\n".join((*model.notes, explain(preview_plan(model, opened, context))))
