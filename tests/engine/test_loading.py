"""Loading weights: bad numbers are found on every device, progress is told, files are let go of."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.steps import step_runner
from tests.tiny_models import TinyModels

from crossinfer import LLM, FormatError
from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.core.progress import no_progress
from crossinfer.engine.residents import Residents
from crossinfer.formats.gguf import GGUFFile
from crossinfer.models.model import load_model


def damaged(path: Path, tensor: str, at: int, value: bytes, folder: Path) -> Path:
    """A copy of a model whose `tensor` has `value` at byte `at`."""
    data = GGUFFile.open(path).tensors[tensor].data
    whole = memoryview(data.obj)
    base, start = (np.frombuffer(part, np.uint8).ctypes.data for part in (whole, data))
    raw = bytearray(path.read_bytes())
    place = start - base + at % data.nbytes
    raw[place : place + len(value)] = value
    made = folder / "damaged.gguf"
    made.write_bytes(raw)
    return made


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("storage", "tensor", "at", "value"),
    [
        ("f32", "blk.1.ffn_down.weight", -4, b"\0\0\xc0\x7f"),
        ("f16", "blk.0.attn_q.weight", 0, b"\0\x7c"),
        ("q8_0", "blk.1.attn_output.weight", 34, b"\x01\xfe"),
        ("q4_k", "token_embd.weight", -142, b"\0\xfc"),
        ("q4_k", "blk.0.ffn_norm.weight", 8, b"\0\0\x80\xff"),
    ],
)
def test_bad_numbers_are_told_by_their_tensor(
    tiny_models: TinyModels,
    tmp_path: Path,
    device: str,
    storage: str,
    tensor: str,
    at: int,
    value: bytes,
) -> None:
    path = damaged(tiny_models("tiny-qwen2", storage), tensor, at, value, tmp_path)
    with pytest.raises(FormatError, match="holds NaN or infinity in row") as caught:
        LLM(str(path), device=device, context=32)
    assert tensor in str(caught.value)


def test_progress_ends_with_all_bytes(tiny_models: TinyModels) -> None:
    told: list[tuple[int, int]] = []

    def progress(task: str, done: int, total: int) -> None:
        if task == "Loading weights":
            told.append((done, total))

    with LLM(str(tiny_models("tiny-qwen2", "q4_0")), device="cpu", progress=progress):
        pass
    assert told[0] == (0, told[0][1])
    assert told[-1] == (told[0][1], told[0][1])
    assert told == sorted(told)


def test_what_failed_to_load_is_loaded_again(tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-qwen2", "q8_0"))
    device = CpuDevice(threads=1)
    with step_runner(model, [device]) as runner:
        expected = Residents(model)
        expected.bring(runner.plan, no_progress)

        def fail_near_the_end(_: str, done: int, total: int) -> None:
            if done > 0.9 * total:
                raise MemoryError

        residents, used = Residents(model), device.memory_in_use
        with pytest.raises(MemoryError):
            residents.bring(runner.plan, fail_near_the_end)
        assert device.memory_in_use == used
        residents.bring(runner.plan, no_progress)
        for tensor in runner.plan.constants_on(0):
            kind, key = tensor.type, (tensor.name, 0)
            size = device.packed_size(kind.shape, kind.storage, kind.role)
            made, again = (device.download(r.buffers[key])[:size] for r in (expected, residents))
            assert again == made, tensor.name
        residents.free()
        expected.free()


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_a_loaded_model_keeps_no_pages_of_its_file(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-qwen2", "f32", hidden_size=512)
    with LLM(str(path), device="cpu", context=32):
        smaps = Path("/proc/self/smaps").read_text()
        _, _, mapping = smaps.partition(str(path))
        resident = int(mapping.partition("Rss:")[2].split()[0])
    assert mapping
    assert resident < 256 < path.stat().st_size >> 12
