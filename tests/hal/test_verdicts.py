"""The store of verdicts on kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.verdicts import Verdict, VerdictStore

GPU = DeviceInfo("vulkan:0", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
NEWER = DeviceInfo("vulkan:0", DeviceKind.DISCRETE_GPU, "a card", "driver 1.3")
OTHER = DeviceInfo("vulkan:1", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
KERNEL = "linear[q4_0]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "verdicts.json"


def test_verdicts_are_kept(path: Path) -> None:
    store = VerdictStore(path)
    assert store.find(GPU, KERNEL) is None
    assert not store.is_barred(GPU, KERNEL)
    store.record(GPU, KERNEL, passed=False, reason="output is wrong by 0.1")
    store.record(GPU, "embed", passed=True)
    for found in (store, VerdictStore(path)):
        assert found.is_barred(GPU, KERNEL)
        assert not found.is_barred(GPU, "embed")
        assert found.all() == [
            Verdict("vulkan:0", "driver 1.2", "embed", True),
            Verdict("vulkan:0", "driver 1.2", KERNEL, False, "output is wrong by 0.1"),
        ]


def test_a_verdict_holds_for_one_device_and_driver(path: Path) -> None:
    store = VerdictStore(path)
    store.record(GPU, KERNEL, passed=False)
    assert store.find(NEWER, KERNEL) is None
    assert store.find(OTHER, KERNEL) is None


def test_the_last_verdict_counts(path: Path) -> None:
    store = VerdictStore(path)
    store.record(GPU, KERNEL, passed=False, reason="wrong")
    store.record(GPU, KERNEL, passed=True)
    for found in (store, VerdictStore(path)):
        assert found.find(GPU, KERNEL) == Verdict(GPU.name, GPU.driver, KERNEL, True)


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    store = VerdictStore(None)
    store.record(GPU, KERNEL, passed=False)
    assert store.is_barred(GPU, KERNEL)
    assert list(tmp_path.iterdir()) == []


GOOD_ROW = {"device": "d", "driver": "v", "kernel": "k", "passed": True, "reason": ""}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[1]",
        b"7",
        b"null",
        b'{"a": 1}',
        json.dumps([GOOD_ROW | {"extra": 1}]).encode(),
        json.dumps([{"device": "d"}]).encode(),
    ],
)
def test_a_broken_file_is_empty_and_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    store = VerdictStore(path)
    assert store.all() == []
    store.record(GPU, KERNEL, passed=True)
    assert VerdictStore(path).all() == store.all() != []


@pytest.mark.parametrize(
    "wrong", [{"passed": 1}, {"passed": None}, {"device": 3}, {"reason": ["x"]}]
)
def test_rows_of_wrong_types_are_left_out(path: Path, wrong: dict[str, object]) -> None:
    path.write_text(json.dumps([GOOD_ROW | wrong, GOOD_ROW | {"kernel": "good"}]))
    assert [verdict.kernel for verdict in VerdictStore(path).all()] == ["good"]


def test_two_stores_on_one_file_keep_what_both_found(path: Path) -> None:
    first, second = VerdictStore(path), VerdictStore(path)
    first.record(GPU, "a", passed=False)
    second.record(GPU, "b", passed=False)
    assert [verdict.kernel for verdict in second.all()] == ["a", "b"]
    first.record(GPU, "c", passed=True)
    assert [verdict.kernel for verdict in VerdictStore(path).all()] == ["a", "b", "c"]


def test_an_old_verdict_in_memory_does_not_undo_a_newer_one_in_the_file(path: Path) -> None:
    VerdictStore(path).record(GPU, "a", passed=True)
    stale, fresh = VerdictStore(path), VerdictStore(path)
    fresh.record(GPU, "a", passed=False, reason="a new failure")
    stale.record(GPU, "b", passed=True)
    assert stale.is_barred(GPU, "a")
    assert VerdictStore(path).is_barred(GPU, "a")


def test_known_failures_count_until_this_machine_knows_better(path: Path) -> None:
    known = [Verdict(GPU.name, GPU.driver, KERNEL, False, "a known failure")]
    store = VerdictStore(path, known)
    assert store.is_barred(GPU, KERNEL)
    assert store.all() == known
    store.record(GPU, "embed", passed=True)
    assert not VerdictStore(path).is_barred(GPU, KERNEL)  # it was not saved
    store.record(GPU, KERNEL, passed=True)
    assert not store.is_barred(GPU, KERNEL)
    assert not VerdictStore(path, known).is_barred(GPU, KERNEL)


def test_the_default_store_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path))
    VerdictStore.default().record(GPU, KERNEL, passed=False)
    assert VerdictStore.default().is_barred(GPU, KERNEL)
    assert len(list(tmp_path.rglob("verdicts.json"))) == 1


def test_nothing_but_the_file_is_left(path: Path) -> None:
    VerdictStore(path).record(GPU, KERNEL, passed=True)
    assert list(path.parent.iterdir()) == [path]
