"""Whether a machine can have a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crossinfer.hal.presence import may_have_gpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="device nodes are Linux's")


@pytest.mark.parametrize("node", ["dri/renderD128", "nvidia0", "dxg"])
def test_a_node_of_a_driver_is_a_sign(tmp_path: Path, node: str) -> None:
    assert not may_have_gpu(tmp_path)
    (tmp_path / node).parent.mkdir(exist_ok=True)
    (tmp_path / node).touch()
    assert may_have_gpu(tmp_path)


@pytest.mark.parametrize("node", ["dri/card0", "nvidiactl", "kfd", "null"])
def test_others_are_none(tmp_path: Path, node: str) -> None:
    (tmp_path / node).parent.mkdir(exist_ok=True)
    (tmp_path / node).touch()
    assert not may_have_gpu(tmp_path)
