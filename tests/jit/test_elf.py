"""Our own linker of kernels' objects, beside LLVM's, and what it refuses."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.jit.compile import compile_object, link_by_llvm, load_object
from crossinfer.jit.elf import PAGE, Image, LinkError, link
from crossinfer.jit.machine_code import LoadedCode, load_elf
from crossinfer.jit.target import AVX512_VNNI, PLAIN_ARM, PLAIN_X86, WINDOWS_X86, host_target

HERE = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="LLVM links here"
)

POLYNOMIAL = """
@table = private constant [4 x i64] [i64 3, i64 -7, i64 1000000007, i64 11]

define i64 @f(i64 %x) nounwind {
  %y = call i64 @inner(i64 %x)
  %z = call i64 @g(i64 %y)
  ret i64 %z
}

define internal i64 @inner(i64 %x) noinline nounwind {
  %i = and i64 %x, 3
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %c = load i64, ptr %at
  %r = mul i64 %x, %c
  ret i64 %r
}

define i64 @g(i64 %x) noinline nounwind {
  %f = sitofp i64 %x to double
  %scaled = fmul double %f, 1.25
  %r = fptosi double %scaled to i64
  ret i64 %r
}
"""
"""Functions that call one another, constants in sections of their own, a table."""

CLOCK = """
declare i32 @clock_gettime(i32, ptr)

define i64 @f(i64 %clock) nounwind {
  %at = alloca [2 x i64]
  %number = trunc i64 %clock to i32
  %result = call i32 @clock_gettime(i32 %number, ptr %at)
  %seconds = load i64, ptr %at
  ret i64 %seconds
}
"""


def compiled(text: str = POLYNOMIAL) -> bytes:
    return compile_object(text, PLAIN_X86)


def linked(code: bytes) -> Image:
    return link(code, lambda _: 0x1234_5678_9ABC)


def call(code: LoadedCode, value: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("f"))
    return int(function(value))


def mappings() -> list[tuple[int, int, str]]:
    """Start, end and rights of all memory of this process."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, rights = line.split()[:2]
        start, end = (int(part, 16) for part in extent.split("-"))
        found.append((start, end, rights))
    return found


def rights_at(address: int) -> str:
    return next((rights for start, end, rights in mappings() if start <= address < end), "")


def writable_code() -> set[tuple[int, int, str]]:
    return {mapping for mapping in mappings() if "w" in mapping[2] and "x" in mapping[2]}


@HERE
@pytest.mark.parametrize("value", [0, 1, 2, 3, 1234567, -5])
def test_code_does_what_it_does_through_llvms_linker(value: int) -> None:
    code = compiled()
    assert call(load_elf(code, ["f", "g"]), value) == call(link_by_llvm(code, ["f", "g"]), value)


@HERE
def test_calls_of_the_c_library() -> None:
    assert abs(call(load_elf(compiled(CLOCK), ["f"]), time.CLOCK_REALTIME) - time.time()) < 5


@HERE
def test_nothing_is_writable_and_only_code_runs() -> None:
    before = writable_code()  # the system may have some, as that of ctypes
    code = load_elf(compiled(), ["f"])
    start = code.address("f")
    image = linked(compiled())
    assert rights_at(start) == "r-xp"
    assert image.code_bytes == PAGE < len(image.data)
    assert rights_at(start - image.symbols["f"] + image.code_bytes) == "r--p"
    assert writable_code() == before


@HERE
def test_memory_is_given_back() -> None:
    code = load_elf(compiled(), ["f"])
    rights, address = rights_at(code.address("f")), code.address("f")
    del code
    gc.collect()
    assert rights == "r-xp" != rights_at(address)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@counter = global i64 5\n" + POLYNOMIAL, "flags 0x3"),
        (CLOCK.replace("clock_gettime", "getpid"), "it needs getpid"),
        (
            "declare i32 @sched_yield()\ndefine ptr @f() nounwind { ret ptr @sched_yield }",
            "a relocation has type",
        ),
        ("define i64 @f(i64 %x) uwtable { ret i64 %x }", "a section has type"),
    ],
)
def test_what_kernels_do_not_have_is_left_to_llvm(text: str, problem: str) -> None:
    code = compiled(text)
    with pytest.raises(LinkError, match=problem):
        linked(code)
    if PLAIN_X86.triple == host_target().triple:
        assert load_object(code, ["f"]).address("f")


def test_other_systems_objects_are_refused() -> None:
    for target in (PLAIN_ARM, PLAIN_X86.for_triple(WINDOWS_X86)):
        with pytest.raises(LinkError, match="no relocatable object for x86-64"):
            linked(compile_object(POLYNOMIAL, target))


@HERE
def test_a_symbol_that_is_missing() -> None:
    with pytest.raises(LinkError, match="does not define h"):
        load_elf(compiled(), ["f", "h"])


def test_an_unknown_relocation() -> None:
    code = bytearray(compiled())
    changed = 0
    for at in range(0, len(code) - 24, 8):
        info = int.from_bytes(code[at + 8 : at + 16], "little")
        if info & 0xFFFF_FFFF in (2, 4) and 0 < info >> 32 < 20 and code[at : at + 8] < b"\x80":
            struct.pack_into("<I", code, at + 8, 1)  # R_X86_64_64
            changed += 1
    assert changed
    with pytest.raises(LinkError, match="a relocation has type 1"):
        linked(bytes(code))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100])
def test_a_cut_object(size: int) -> None:
    with pytest.raises(LinkError, match="cut short"):
        linked(compiled()[:size])


MUTATED = [compiled(), compiled(CLOCK), compile_object(POLYNOMIAL, AVX512_VNNI)]


@given(
    st.sampled_from(MUTATED),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 8), st.integers(0, 2**64 - 1))),
    st.floats(0, 1),
)
def test_damaged_objects_give_an_image_or_an_error(
    code: bytes, changes: list[tuple[float, int, int]], keep: float
) -> None:
    damaged = bytearray(code)
    for place, size, value in changes:
        at = int(place * (len(damaged) - size))
        damaged[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    if keep < 0.5:
        del damaged[int(2 * keep * len(damaged)) :]
    _check(bytes(damaged))


@pytest.mark.parametrize("value", [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x8000_0000_0000_0000])
def test_every_word_of_an_object_may_be_wrong(value: int) -> None:
    for code in MUTATED:
        for at in range(0, len(code) - 7, 4):
            damaged = bytearray(code)
            size = 4 if value < 1 << 32 else 8
            damaged[at : at + size] = value.to_bytes(size, "little")
            _check(bytes(damaged))


def _check(damaged: bytes) -> None:
    """What is linked stays within its image; nothing but LinkError is raised."""
    with contextlib.suppress(LinkError):
        image = linked(damaged)
        assert image.code_bytes % PAGE == 0
        assert image.code_bytes <= -(-len(image.data) // PAGE) * PAGE
        assert all(0 <= place <= image.code_bytes for place in image.symbols.values())
