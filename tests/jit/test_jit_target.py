"""What the machine can run, found without LLVM."""

from __future__ import annotations

import pytest
from llvmlite import binding

from crossinfer.jit import target


@pytest.mark.skipif(target._features_by_linux() is None, reason="Linux lists no flags here")
def test_linux_tells_the_features_that_llvm_finds() -> None:
    found = target._features_by_linux()
    by_llvm = binding.get_host_cpu_features()
    assert found == {name: by_llvm.get(name, False) for name in found or {}}
    assert {name for required in target._REQUIRED.values() for name in required} == set(found or {})


def test_a_machine_without_such_a_list_asks_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = target.host_targets()
    monkeypatch.setattr(target, "first_core", dict)
    for cached in (target._host_features, target.host_targets):
        cached.cache_clear()
    try:
        assert target.host_targets() == expected
    finally:
        for cached in (target._host_features, target.host_targets):
            cached.cache_clear()
