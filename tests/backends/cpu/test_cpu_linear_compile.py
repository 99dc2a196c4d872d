"""linear's kernels compile for machines that are not here, and call nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from tests.jit.object_symbols import undefined_symbols

from crossinfer.backends.cpu.kernels.activation_tile import activation_tile
from crossinfer.backends.cpu.kernels.activations import build_arrange, build_quantize
from crossinfer.backends.cpu.kernels.linear import OPTIONAL, tokens_at_once
from crossinfer.backends.cpu.kernels.linear_kernel import build_gated_linear, build_linear
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, Q4_0, Q4_K, Q6_K, Q8_0, BlockFormat
from crossinfer.jit.compile import compile_assembly, compile_object
from crossinfer.jit.target import (
    ARM_TARGETS,
    AVX512_VNNI,
    AVX_VNNI,
    MACOS_ARM,
    WINDOWS_X86,
    X86_TARGETS,
    Target,
)

FOREIGN = [
    *ARM_TARGETS,
    *[target.for_triple(MACOS_ARM) for target in ARM_TARGETS],
    *[target.for_triple(WINDOWS_X86) for target in X86_TARGETS],
]
_CALL = re.compile(r"^\s+(call\w*|bl|blr)\s", re.MULTILINE)


def name(target: Target) -> str:
    return f"{target.name}-{target.triple}"


def kernels(target: Target, formats: Sequence[BlockFormat] = BLOCK_FORMATS) -> dict[str, str]:
    """LLVM IR by symbol: formats with as many tokens as the target takes."""
    tokens = tokens_at_once(512, target)
    made = {"arrange": build_arrange("arrange", target, tokens)}
    for storage in (Q4_0, Q4_K, Q6_K):
        symbol = f"quantize_{storage.label}"
        made[symbol] = build_quantize(symbol, target, activation_tile(storage, tokens))
    for number, storage in enumerate(formats):
        optional = OPTIONAL if number == 0 else ()
        made[storage.label] = build_linear(storage.label, target, storage, tokens, optional)
    for scalar in (DType.F32, DType.F16, DType.BF16):
        made[scalar.label] = build_linear(scalar.label, target, scalar, tokens, ())
    return made


@pytest.mark.parametrize("target", FOREIGN, ids=name)
def test_objects_are_made_for_other_machines(target: Target) -> None:
    for symbol, ir in kernels(target, (Q8_0, Q6_K)).items():
        assert symbol.encode() in compile_object(ir, target)


@pytest.mark.parametrize("target", [*X86_TARGETS, *ARM_TARGETS], ids=name)
def test_no_kernel_calls_a_library(target: Target) -> None:
    for symbol, ir in kernels(target).items():
        assert not _CALL.search(compile_assembly(ir, target)), symbol


@pytest.mark.parametrize("target", X86_TARGETS, ids=lambda target: target.name)
def test_the_largest_kernels_keep_to_a_page_of_stack(target: Target) -> None:
    """More would call __chkstk on Windows."""
    windows = target.for_triple(WINDOWS_X86)
    for storage in BLOCK_FORMATS:
        ir = build_gated_linear("kernel", windows, storage, tokens_at_once(512, target), ())
        symbols = undefined_symbols(compile_object(ir, windows)) - {"_fltused"}
        assert not symbols, f"{storage.label} needs {symbols}"


@pytest.mark.parametrize("storage", [Q4_0, Q8_0, Q4_K, Q6_K], ids=lambda storage: storage.label)
def test_processors_without_avx512_have_dot_products_of_bytes(storage: BlockFormat) -> None:
    """In an encoding of their own; they know none of AVX-512's."""
    tokens = tokens_at_once(512, AVX_VNNI)
    assembly = compile_assembly(build_linear("kernel", AVX_VNNI, storage, tokens, ()), AVX_VNNI)
    assert assembly.count("vpdpbusd") == assembly.count("{vex}") == 8 * tokens
    assert "zmm" not in assembly
    assert "{1to" not in assembly


@pytest.mark.parametrize("storage", [Q4_0, Q8_0, Q4_K, Q6_K], ids=lambda storage: storage.label)
def test_activations_are_operands_of_the_dot_products(storage: BlockFormat) -> None:
    """The speed rests on it: no broadcast takes a register."""
    tokens = tokens_at_once(512, AVX512_VNNI)
    assembly = compile_assembly(
        build_linear("kernel", AVX512_VNNI, storage, tokens, ()), AVX512_VNNI
    )
    products = re.findall(r"^\s+vpdpbusd\s+(.*)$", assembly, re.MULTILINE)
    assert len(products) == 8 * tokens
    assert all("{1to16}" in operands for operands in products)
