"""Small models with random weights, made once a test run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossinfer.testing.models import Container, write_model


class TinyModels:
    """Writes a model when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}

    def __call__(
        self,
        name: str,
        storage: str = "f32",
        container: Container = "gguf",
        seed: int = 7,
        **overrides: Any,
    ) -> Path:
        """The path of the model (see `crossinfer.testing.models.write_model`)."""
        key = f"{name}-{storage}-{container}-{seed}-{sorted(overrides.items())}"
        if key not in self._paths:
            path = self._folder / f"{len(self._paths)}-{name}-{storage}"
            self._paths[key] = write_model(
                name, storage, path, seed=seed, container=container, **overrides
            )
        return self._paths[key]
