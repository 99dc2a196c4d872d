"""The architectures by the names that GGUF files and config.json use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crossinfer.core.errors import FormatError, shown
from crossinfer.graph.graph import Graph
from crossinfer.hal.kernel import Operand
from crossinfer.models import llama, qwen2, qwen3
from crossinfer.models.config import ModelConfig
from crossinfer.models.decoder import StepShape

GraphFunction = Callable[[ModelConfig, Mapping[str, Operand], StepShape], Graph]

ARCHITECTURES: dict[str, GraphFunction] = {
    "llama": llama.build,
    "qwen2": qwen2.build,
    "qwen3": qwen3.build,
}


def find_architecture(name: str, where: str) -> GraphFunction:
    """The graph function of an architecture. Raises FormatError, naming the file `where`."""
    if name not in ARCHITECTURES:
        raise FormatError(
            f"{where}: the architecture {shown(name)} is not supported; "
            f"{', '.join(ARCHITECTURES)} are."
        )
    return ARCHITECTURES[name]
