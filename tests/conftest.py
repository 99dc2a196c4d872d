"""Fixtures that all tests share: a cache of the test run's own, and the real models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real_models import fetch_qwen_coder
from tests.tiny_models import TinyModels

from crossinfer.engine.demo_model_fetch import fetch_demo_model


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Makes small random models by name and storage."""
    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: the demo model, from the user's cache."""
    return fetch_demo_model()


@pytest.fixture(scope="session")
def qwen_coder_path() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, Q4_K_M; 491 MB, so for slow tests."""
    return fetch_qwen_coder()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
