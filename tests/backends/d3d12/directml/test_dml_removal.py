"""The case that this project began with: the DirectML GEMM of M = 5, K = 64, N = 32 removes the
device. A generation goes on without it, with the tokens of an undisturbed run.

The engine's steps have a power of two of rows. For M = 5, these tests let them have as many as they
need.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.backends.d3d12.directml.computing import ComputingDirectML
from tests.backends.d3d12.directml.removal import RemovingDriver, gemm_shape
from tests.backends.d3d12.directml.test_dml_lowering import linear_operands
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceWarning
from crossinfer.backends.d3d12 import open_d3d12
from crossinfer.backends.d3d12.directml import gemm_smoke
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InFlight
from crossinfer.engine import buckets
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.kernel import shape_text
from crossinfer.hal.known_failures import KNOWN_FAILURES
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.kernels import attention

GEMM = "directml_gemm[f32]"
SHAPE = (5, 64, 32)
OPERANDS = linear_operands(5, 32, 64)
SHAPE_TEXT = shape_text(OPERANDS)
LONG_PROMPT, SHORT_PROMPT = list(range(20, 29)), list(range(60, 64))
LONG_ANSWER, SHORT_ANSWER = 24, 6

Answers = tuple[tuple[int, ...], tuple[int, ...]]


@pytest.fixture
def verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the verdicts, which each start reads. It ships with nothing."""
    path = tmp_path / "verdicts.json"
    monkeypatch.setattr(VerdictStore, "default", classmethod(lambda _: VerdictStore(path)))
    return path


@pytest.fixture
def model(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its keys and values are products of K = 64 and N = 32."""
    monkeypatch.setattr(buckets, "_bucket", lambda size: size)
    # The other kernel takes lavapipe tens of seconds to compile, for each new device.
    monkeypatch.setattr(attention, "_prefers_split", lambda *_: True)
    return tiny_models("tiny-llama", hidden_size=64, heads=4, kv_heads=2, head_dim=16)


def answers(path: Path, device: str = "d3d12") -> Answers:
    """A long answer, and a short one to a prompt of four tokens that comes in the middle of it: for
    one step there are five rows.
    """
    with LLM(path, device, context=64) as llm:
        long = llm.stream(LONG_PROMPT, max_tokens=LONG_ANSWER)
        for _ in range(2):
            next(long)
        short = llm.stream(SHORT_PROMPT, max_tokens=SHORT_ANSWER)
        return long.result().tokens, short.result().tokens


def gemms(directml: ComputingDirectML) -> list[tuple[int, int, int] | None]:
    """The shapes of the products that were recorded since the last call."""
    found = [gemm_shape(seen) for _, seen in directml.dispatched]
    directml.dispatched.clear()
    return found


@pytest.mark.parametrize(
    ("verify", "removals"),
    [
        ("1", 1),  # alone, before the first step with five rows
        ("0", 2),  # in the step, and alone, when those that were in flight are tried
    ],
)
def test_a_generation_goes_on_without_the_operator(
    directml: ComputingDirectML,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    verdicts: Path,
    verify: str,
    removals: int,
) -> None:
    monkeypatch.setenv("CROSSINFER_VERIFY", verify)
    monkeypatch.setenv("CROSSINFER_DIRECTML", "off")
    expected = answers(model)
    assert gemms(directml) == []
    monkeypatch.setenv("CROSSINFER_DIRECTML", "on")
    assert answers(model) == expected
    assert SHAPE in gemms(directml), "the operator runs where it removes nothing"
    verdicts.unlink(missing_ok=True)
    driver = RemovingDriver(monkeypatch, directml, SHAPE)

    with pytest.warns(DeviceWarning) as caught:
        assert answers(model) == expected
    assert driver.removals == removals
    told = " ".join(str(warning.message) for warning in caught)
    assert "DXGI_ERROR_DEVICE_REMOVED (0x887A0005)" in told
    assert f"{GEMM} at {SHAPE_TEXT}" in told or f"{GEMM} ({SHAPE_TEXT})" in told
    after = gemms(directml)
    assert len(set(after) - {SHAPE, None}) > 5, "at other shapes it is still used"

    store, info = VerdictStore(verdicts), d3d12_info()
    assert store.is_barred(info, GEMM, SHAPE_TEXT)
    assert not store.is_barred(info, GEMM, shape_text(linear_operands(6, 32, 64)))
    assert not store.is_barred(info, "linear_vec[f32,t8,r2]", SHAPE_TEXT)

    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceWarning)
        assert answers(model) == expected
    assert driver.removals == removals, "the next start does not try it again"
    assert SHAPE not in gemms(directml)


def d3d12_info() -> DeviceInfo:
    with open_d3d12() as device:
        return device.info


def test_the_table_of_known_failures_spares_the_device(
    directml: ComputingDirectML,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    tmp_path: Path,
) -> None:
    row = KNOWN_FAILURES[0]
    assert (row.backend, row.kernel, row.shape) == (
        "d3d12",
        "directml_gemm",
        "x 5x64, weight 32x64",
    )
    store = VerdictStore(tmp_path / "verdicts.json", KNOWN_FAILURES)
    monkeypatch.setattr(VerdictStore, "default", classmethod(lambda _: store))
    driver = RemovingDriver(monkeypatch, directml, SHAPE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceWarning)
        answers(model)
    assert driver.removals == 0
    assert SHAPE not in gemms(directml)


def test_what_the_loss_tells(directml: ComputingDirectML, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = RemovingDriver(monkeypatch, directml, SHAPE)
    x, weight = np.zeros((5, 64), np.float32), np.zeros((32, 64), np.float32)
    with open_d3d12() as device:
        lowering = device.lower(Linear(), OPERANDS)[0]
        views = {
            "x": device.upload(x, x.shape, DType.F32).view(),
            "weight": device.upload(weight, weight.shape, DType.F32, Role.WEIGHT).view(),
            "output": device.alloc((5, 32), DType.F32).view(),
        }
        for name, size in lowering.scratch.items():
            views[name] = device.alloc((size // 4,), DType.I32).view()
        recorder = device.recorder()
        for dispatch in lowering.bind(views, "layer 0 key", SHAPE_TEXT):
            recorder.dispatch(dispatch)
        fence = device.submit(recorder.finish())
        with pytest.raises(DeviceLost) as caught:
            fence.wait()
    error = caught.value
    assert error.in_flight == (GEMM,)
    assert error.dispatches == (InFlight(GEMM, "layer 0 key", SHAPE_TEXT),)
    assert "DXGI_ERROR_DEVICE_REMOVED (0x887A0005)" in error.reason
    assert f"{GEMM} ({SHAPE_TEXT})" in str(error)
    assert driver.removals == 1
    assert directml.world.alive == [], "a device that is lost lets go of everything as well"


def test_the_smoke_command_names_the_operator(
    directml: ComputingDirectML,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = RemovingDriver(monkeypatch, directml, SHAPE)
    assert gemm_smoke.main([]) == gemm_smoke.ExitCode.LOST
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("directml_gemm[f32]       5x64x32 ")
    assert "DXGI_ERROR_DEVICE_REMOVED (0x887A0005)" in last
    assert driver.removals == 1
    assert gemm_smoke.main(["--m", "6"]) == gemm_smoke.ExitCode.RIGHT
