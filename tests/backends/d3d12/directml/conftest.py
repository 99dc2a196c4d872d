"""A DirectML for the devices that a test opens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.backends.d3d12.directml.computing import ComputingDirectML, install_directml


@pytest.fixture
def directml(monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputingDirectML]:
    """Found as if it were installed, and first in line. It must have nothing to complain about."""
    made = install_directml(monkeypatch)
    yield made
    assert made.world.complaints == []
