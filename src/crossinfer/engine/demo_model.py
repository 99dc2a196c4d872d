"""The demo model: SmolLM2-135M-Instruct (GGUF, Q4_1, Apache-2.0), in the cache folder."""

from __future__ import annotations

from pathlib import Path

from crossinfer.core.cache import cache_folder
from crossinfer.core.errors import FormatError

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model_path() -> Path:
    """Where the demo model is, or will be."""
    return cache_folder("models") / NAME


def find_demo_model() -> Path:
    """The demo model's path. Raises FormatError, saying how to get one, if it is not there."""
    path = demo_model_path()
    if not path.exists():
        raise FormatError(
            "No model was named and the demo model is not there: run `crossinfer demo-model` to "
            "get it (93 MB), or name a GGUF file or a model folder."
        )
    return path
