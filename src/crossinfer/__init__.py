"""crossinfer runs large language models on whatever compute a machine has.

>>> from crossinfer import LLM
>>> with LLM() as llm:
...     print(llm.generate("The capital of France is", max_tokens=5).text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crossinfer.core.errors import (
    CrossinferError,
    DeviceError,
    DeviceLost,
    DeviceWarning,
    FormatError,
    InvalidUse,
    KernelUnsupported,
    OutOfDeviceMemory,
    PlanError,
    RequestError,
    SettingsError,
    TemplateError,
    TokenizerError,
)

if TYPE_CHECKING:
    from crossinfer.backends.d3d12.injection import from_d3d12
    from crossinfer.backends.vulkan.injection import from_vulkan
    from crossinfer.engine.generation import FinishReason, Generation, Stats
    from crossinfer.engine.llm import LLM
    from crossinfer.engine.sampling import SamplingParams
    from crossinfer.engine.stream import Stream
    from crossinfer.hal.registry import list_devices as devices

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "CrossinferError",
    "DeviceError",
    "DeviceLost",
    "DeviceWarning",
    "FinishReason",
    "FormatError",
    "Generation",
    "InvalidUse",
    "KernelUnsupported",
    "OutOfDeviceMemory",
    "PlanError",
    "RequestError",
    "SamplingParams",
    "SettingsError",
    "Stats",
    "Stream",
    "TemplateError",
    "TokenizerError",
    "devices",
    "from_d3d12",
    "from_vulkan",
]

# Loaded when they are first asked for: NumPy and the engine take a while.
_LAZY = {
    "LLM": ("crossinfer.engine.llm", "LLM"),
    "FinishReason": ("crossinfer.engine.generation", "FinishReason"),
    "Generation": ("crossinfer.engine.generation", "Generation"),
    "Stats": ("crossinfer.engine.generation", "Stats"),
    "SamplingParams": ("crossinfer.engine.sampling", "SamplingParams"),
    "Stream": ("crossinfer.engine.stream", "Stream"),
    "devices": ("crossinfer.hal.registry", "list_devices"),
    "from_d3d12": ("crossinfer.backends.d3d12.injection", "from_d3d12"),
    "from_vulkan": ("crossinfer.backends.vulkan.injection", "from_vulkan"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)
