"""Objects for machines that are not here: every kernel compiles, and needs nothing from elsewhere.

A call of a run-time library (memset, fmaf, __extendhfsf2, __chkstk) would be an undefined symbol.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from tests.jit.object_symbols import undefined_symbols

from crossinfer.backends.cpu.kernels.argmax import build_argmax
from crossinfer.backends.cpu.kernels.attention import build_attention
from crossinfer.backends.cpu.kernels.attention_part import (
    build_attention_merge,
    build_attention_part,
)
from crossinfer.backends.cpu.kernels.embed import build_embed
from crossinfer.backends.cpu.kernels.pack_narrow import build_pack_narrow
from crossinfer.backends.cpu.kernels.pack_tiles import build_pack
from crossinfer.backends.cpu.kernels.rms_norm import build_rms_norm
from crossinfer.backends.cpu.kernels.rope_kv import build_rope_kv
from crossinfer.backends.cpu.kernels.swiglu import build_swiglu
from crossinfer.backends.cpu.kernels.top_k import build_top_k
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import Q3_K, Q5_0, Q6_K, Q8_0
from crossinfer.jit.compile import compile_object
from crossinfer.jit.target import ARM_TARGETS, WINDOWS_X86, X86_TARGETS, Target
from crossinfer.jit.types import f16, f32

TARGETS = (*ARM_TARGETS, *X86_TARGETS, *(t.for_triple(WINDOWS_X86) for t in X86_TARGETS))

BUILDERS: dict[str, Callable[[Target], str]] = {
    "swiglu": build_swiglu,
    "argmax": build_argmax,
    "top_k": build_top_k,
    "rms_norm": lambda t: build_rms_norm(t, "kernel", True),
    "rope_kv halves": lambda t: build_rope_kv(t, "kernel", f16, 64, False),
    "rope_kv interleaved": lambda t: build_rope_kv(t, "kernel", f32, 40, True),
    "attention f16": lambda t: build_attention(t, "kernel", f16, 40),
    "attention f32": lambda t: build_attention(t, "kernel", f32, 128),
    "attention part": lambda t: build_attention_part(t, "kernel", f16, 128, 7),
    "attention merge": lambda t: build_attention_merge(t, "kernel", 40),
    "embed dense": lambda t: build_embed(t, "kernel", DType.F32, tiled=False),
} | {
    f"embed {storage.label}": lambda t, storage=storage: build_embed(
        t, "kernel", storage, tiled=True
    )
    for storage in (DType.F16, DType.BF16, Q5_0, Q8_0, Q3_K, Q6_K)
}

BUILDERS |= {
    f"pack {storage.label}": functools.partial(build_pack, "kernel", storage=storage)
    for storage in (DType.F32, Q5_0, Q8_0, Q3_K, Q6_K)
}
BUILDERS |= {
    f"pack {storage.label}": functools.partial(build_pack_narrow, "kernel", storage=storage)
    for storage in (DType.F16, DType.BF16)
}

# MSVC's mark for objects that use floating point; linkers want it, nobody calls it.
_ALLOWED = {"_fltused"}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.name}-{t.triple.split('-')[2]}")
def test_objects_need_nothing(target: Target) -> None:
    for name, build in BUILDERS.items():
        missing = undefined_symbols(compile_object(build(target), target)) - _ALLOWED
        assert not missing, f"{name} needs {missing}"
