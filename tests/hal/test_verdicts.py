"""The store of verdicts on kernels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.known_failures import KNOWN_FAILURES, KnownFailure
from crossinfer.hal.verdicts import Finding, Verdict, VerdictStore

GPU = DeviceInfo("vulkan:0", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
NEWER = DeviceInfo("vulkan:0", DeviceKind.DISCRETE_GPU, "a card", "driver 1.3")
OTHER = DeviceInfo("vulkan:1", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
NEW_CODE = dataclasses.replace(GPU, kernel_code="2")
KERNEL = "linear[q4_0]"
SHAPE = "x 5x64, weight 32x64, output 5x32"
OTHER_SHAPE = "x 6x64, weight 32x64, output 6x32"


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


GOOD_ROW = dataclasses.asdict(Verdict("d", "v", "k", True))


def file_of(*rows: object, version: object = 2) -> bytes:
    return json.dumps({"version": version, "verdicts": rows, "measurements": []}).encode()


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
        json.dumps([GOOD_ROW]).encode(),
        file_of(GOOD_ROW, version=1),
        file_of(GOOD_ROW, version="2"),
        file_of(GOOD_ROW | {"extra": 1}),
        file_of({"device": "d"}),
        b'{"version": 2, "verdicts": 7, "measurements": {"a": 1}}',
        b'{"version": 2}',
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
    path.write_bytes(file_of(GOOD_ROW | wrong, GOOD_ROW | {"kernel": "good"}))
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


def test_a_verdict_on_a_shape_holds_for_that_shape_alone(path: Path) -> None:
    first = VerdictStore(path)
    first.record(GPU, KERNEL, passed=False, reason="lost", shape=SHAPE)
    for store in (first, VerdictStore(path)):
        assert store.is_barred(GPU, KERNEL, SHAPE)
        assert store.is_barred(GPU, KERNEL, SHAPE + ", residual 5x32")
        assert store.find(GPU, KERNEL, OTHER_SHAPE) is None
        assert store.find(GPU, KERNEL) is None
        assert store.barred_shapes(GPU, KERNEL) == [SHAPE]


def test_a_pass_everywhere_does_not_lift_the_bar_at_a_shape() -> None:
    store = VerdictStore(None)
    store.record(GPU, KERNEL, passed=False, shape=SHAPE)
    store.record(GPU, KERNEL, passed=True)
    assert store.is_barred(GPU, KERNEL, SHAPE)
    assert not store.is_barred(GPU, KERNEL, OTHER_SHAPE)
    store.record(GPU, KERNEL, passed=True, shape=SHAPE)
    assert not store.is_barred(GPU, KERNEL, SHAPE)


def test_a_bar_everywhere_holds_at_a_shape_that_passed() -> None:
    store = VerdictStore(None)
    store.record(GPU, KERNEL, passed=True, shape=SHAPE)
    store.record(GPU, KERNEL, passed=False)
    assert store.is_barred(GPU, KERNEL, SHAPE)


def test_verdicts_on_other_code_do_not_count_and_go(path: Path) -> None:
    VerdictStore(path).record(GPU, KERNEL, passed=False)
    VerdictStore(path).record(OTHER, KERNEL, passed=False)
    store = VerdictStore(path)
    assert store.find(NEW_CODE, KERNEL) is None
    store.record(NEW_CODE, "embed", passed=True)
    assert [(v.device, v.kernel_code) for v in VerdictStore(path).all()] == [
        ("vulkan:0", "2"),
        ("vulkan:1", ""),
    ]


def test_several_verdicts_at_once(path: Path) -> None:
    store = VerdictStore(path)
    store.record_all(GPU, [Finding("a"), Finding("b", "wrong"), Finding("c", "lost", SHAPE)])
    for found in (store, VerdictStore(path)):
        assert [(v.kernel, v.passed, v.shape) for v in found.all()] == [
            ("a", True, ""),
            ("b", False, ""),
            ("c", False, SHAPE),
        ]


def test_measurements_are_kept_by_device_driver_and_code(path: Path) -> None:
    store = VerdictStore(path)
    assert store.measured(GPU, "decode") is None
    store.record_measured(GPU, "decode", 0.5)
    store.record(GPU, KERNEL, passed=True)
    for found in (store, VerdictStore(path)):
        assert found.measured(GPU, "decode") == 0.5
        assert [found.measured(info, "decode") for info in (NEWER, OTHER, NEW_CODE)] == [None] * 3
        assert found.measured(GPU, "other") is None


def test_forgetting_a_device_leaves_the_others(path: Path) -> None:
    store = VerdictStore(path)
    for info in (GPU, NEWER, OTHER):
        store.record(info, KERNEL, passed=False)
        store.record_measured(info, "decode", 1.0)
    store.forget(GPU)
    for found in (store, VerdictStore(path)):
        assert [v.device for v in found.all()] == ["vulkan:1"]
        assert found.measured(NEWER, "decode") is None
        assert found.measured(OTHER, "decode") == 1.0


KNOWN = KnownFailure("vulkan", "linear", "a known failure")
KNOWN_AT_SHAPE = dataclasses.replace(KNOWN, shape="x 5x64, weight 32x64")


def test_known_failures_count_until_this_machine_knows_better(path: Path) -> None:
    store = VerdictStore(path, [KNOWN])
    assert store.is_barred(GPU, KERNEL)
    assert store.all() == []
    store.record(GPU, "embed", passed=True)
    assert not VerdictStore(path).is_barred(GPU, KERNEL)  # it was not saved
    store.record(GPU, KERNEL, passed=True)
    assert not store.is_barred(GPU, KERNEL)
    assert not VerdictStore(path, [KNOWN]).is_barred(GPU, KERNEL)


def test_a_known_failure_at_a_shape_is_cured_there_alone() -> None:
    store = VerdictStore(None, [KNOWN_AT_SHAPE])
    store.record(GPU, KERNEL, passed=True)  # of another shape, since this one is never run
    assert store.is_barred(GPU, KERNEL, SHAPE)
    assert not store.is_barred(GPU, KERNEL, OTHER_SHAPE)
    verdict = store.find(GPU, KERNEL, SHAPE)
    assert verdict is not None
    assert verdict.reason == "a known failure"
    store.record(GPU, KERNEL, passed=True, shape=SHAPE)
    assert not store.is_barred(GPU, KERNEL, SHAPE)


@pytest.mark.parametrize(
    ("row", "concerned"),
    [
        (KNOWN, True),
        (dataclasses.replace(KNOWN, backend="d3d12"), False),
        (dataclasses.replace(KNOWN, vendor_id=0x10DE), True),
        (dataclasses.replace(KNOWN, vendor_id=0x1002), False),
        (dataclasses.replace(KNOWN, vendor_id=0x10DE, product_id=0x2330), True),
        (dataclasses.replace(KNOWN, product_id=0x2331), False),
        (dataclasses.replace(KNOWN, first_driver="550.9", last_driver="550.54"), True),
        (dataclasses.replace(KNOWN, first_driver="550.54.1"), False),
        (dataclasses.replace(KNOWN, first_driver="99"), True),
        (dataclasses.replace(KNOWN, last_driver="550.9"), False),
        (dataclasses.replace(KNOWN, last_driver="551"), True),
    ],
)
def test_whom_a_known_failure_concerns(row: KnownFailure, concerned: bool) -> None:
    info = dataclasses.replace(GPU, driver="NVIDIA 550.54", vendor_id=0x10DE, product_id=0x2330)
    assert row.concerns(info) == concerned
    assert VerdictStore(None, [row]).is_barred(info, KERNEL) == concerned


def test_a_driver_without_a_version_is_in_no_range() -> None:
    info = dataclasses.replace(GPU, driver="unknown")
    assert not dataclasses.replace(KNOWN, last_driver="1.0").concerns(info)
    assert KNOWN.concerns(info)


def test_a_known_failure_names_a_kernel_or_its_family() -> None:
    assert KNOWN.names("linear")
    assert KNOWN.names("linear[q4_0]")
    assert not KNOWN.names("linear_vec[q4_0]")


def test_the_products_that_remove_the_device_ship_as_the_first_row() -> None:
    """DirectML's GEMM of M = 5, K = 64, N = 32, whoever the vendor is."""
    store = VerdictStore(None, KNOWN_FAILURES)
    gpu = DeviceInfo("d3d12:1", DeviceKind.DISCRETE_GPU, "a card", "31.0.15.1", vendor_id=0x8086)
    for kernel in ("directml_gemm[f32]", "directml_gemm[f16]"):
        assert store.is_barred(gpu, kernel, SHAPE)
        assert not store.is_barred(gpu, kernel, OTHER_SHAPE)
        assert not store.is_barred(GPU, kernel, SHAPE)
    assert not store.is_barred(gpu, "linear_vec[f32,t1]", SHAPE)
    verdict = store.find(gpu, "directml_gemm[f32]", SHAPE)
    assert verdict is not None
    assert "0x887A0005" in verdict.reason


def test_the_default_store_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path))
    VerdictStore.default().record(GPU, KERNEL, passed=False)
    assert VerdictStore.default().is_barred(GPU, KERNEL)
    assert len(list(tmp_path.rglob("verdicts.json"))) == 1


def test_nothing_but_the_file_is_left(path: Path) -> None:
    VerdictStore(path).record(GPU, KERNEL, passed=True)
    assert list(path.parent.iterdir()) == [path]
