"""Kernels of whole models: linked without LLVM, they compute the same bits, and start sooner."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.backends.cpu import library, processor
from crossinfer.backends.cpu.kernels import packing
from crossinfer.core.dtypes import Array
from crossinfer.jit import object_cache
from crossinfer.jit.compile import link_by_llvm

TOKENS = [1, 5, 9, 2, 7, 3, 3, 8, 4, 6, 11, 10, 12, 13, 14, 15, 16, 17]


def forget_loaded_code() -> None:
    for cached in (library.kernel_library, processor.load_processor, packing._packer):
        cached.cache_clear()


def logits(path: object) -> Array:
    forget_loaded_code()
    with LLM(str(path), device="cpu", context=64) as llm:
        return llm.logits(TOKENS)


@pytest.mark.parametrize("storage", ["f16", "q8_0", "q4_k", "q6_k"])
def test_models_compute_the_same_bits_through_llvms_linker(
    tiny_models: TinyModels, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_models("tiny-qwen2", storage)
    ours = logits(path)
    linked: list[bytes] = []

    def link_and_count(code: bytes, symbols: list[str]) -> object:
        linked.append(code)
        return link_by_llvm(code, symbols)

    monkeypatch.setattr(object_cache, "load_object", link_and_count)
    try:
        by_llvm = logits(path)
    finally:
        forget_loaded_code()
    assert len(linked) > 8
    assert np.array_equal(ours, by_llvm)


def test_a_start_that_finds_all_kernels_does_without_llvm(tiny_models: TinyModels) -> None:
    program = (
        "import sys\n"
        "from crossinfer import LLM\n"
        "with LLM(sys.argv[1], device='cpu', context=64) as llm:\n"
        "    llm.logits([1, 2, 3])\n"
        "print(sorted(m for m in sys.modules if m.startswith('llvmlite.')))\n"
    )
    for _ in range(2):
        run = [sys.executable, "-c", program, str(tiny_models("tiny-qwen2", "q8_0"))]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['llvmlite._version']"
