"""IR to objects for every target, and objects to functions."""

from __future__ import annotations

import ctypes
import gc
import threading
from pathlib import Path

import pytest

from crossinfer.core.errors import KernelUnsupported
from crossinfer.jit import object_cache
from crossinfer.jit.compile import compile_assembly, compile_object, compiler_version, load_object
from crossinfer.jit.object_cache import cached_object, entry_path, load_cached, load_generated
from crossinfer.jit.target import (
    ARM_TARGETS,
    AVX2,
    AVX512_VNNI,
    MACOS_ARM,
    PLAIN_ARM,
    PLAIN_X86,
    WINDOWS_X86,
    X86_TARGETS,
    host_target,
    host_targets,
)

ADD = """
define i64 @add(i64 %a) {{
  %sum = add i64 %a, {0}
  ret i64 %sum
}}
"""


def call(address: int, value: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    return int(function(value))


@pytest.mark.parametrize(
    ("machine", "magic"),
    [
        *[(machine, b"\x7fELF") for machine in (*X86_TARGETS, *ARM_TARGETS)],
        (AVX2.for_triple(WINDOWS_X86), b"\x64\x86"),
        (PLAIN_ARM.for_triple(MACOS_ARM), b"\xcf\xfa\xed\xfe"),
    ],
)
def test_objects_for_every_platform(machine: object, magic: bytes) -> None:
    assert compile_object(ADD.format(1), machine).startswith(magic)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", host_targets(), ids=lambda machine: machine.name)
def test_code_runs(machine: object) -> None:
    code = load_object(compile_object(ADD.format(5), machine), ["add"])  # type: ignore[arg-type]
    assert call(code.address("add"), 37) == 42


def test_assembly_is_what_the_target_has() -> None:
    text = """
    define <16 x float> @twice(<16 x float> %x) {
      %sum = fadd <16 x float> %x, %x
      ret <16 x float> %sum
    }
    """
    assert "zmm" in compile_assembly(text, AVX512_VNNI)
    avx2 = compile_assembly(text, AVX2)
    assert "ymm" in avx2
    assert "zmm" not in avx2
    assert "ymm" not in compile_assembly(text, PLAIN_X86)
    assert "fadd" in compile_assembly(text, PLAIN_ARM)


def test_loops_are_not_made_calls_where_builtins_are_off() -> None:
    text = """
    define void @clear(ptr %p, i64 %n) nounwind "no-builtins" {
    entry:
      br label %each
    each:
      %i = phi i64 [ 0, %entry ], [ %next, %each ]
      %at = getelementptr i8, ptr %p, i64 %i
      store i8 0, ptr %at
      %next = add i64 %i, 1
      %more = icmp ult i64 %next, %n
      br i1 %more, label %each, label %done
    done:
      ret void
    }
    """
    assert "memset" not in compile_assembly(text, host_target())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define i64 @f() { ret i32 0 }", "not valid LLVM IR"),
        ("this is not IR", "not valid LLVM IR"),
    ],
)
def test_broken_ir(text: str, message: str) -> None:
    with pytest.raises(KernelUnsupported, match=message):
        compile_object(text, host_target())


def test_an_unknown_target() -> None:
    with pytest.raises(KernelUnsupported, match="no target nothing-unknown"):
        compile_object(ADD.format(1), PLAIN_X86.for_triple("nothing-unknown-unknown"))


def test_symbols_that_nobody_has() -> None:
    code = compile_object(ADD.format(1), host_target())
    with pytest.raises(KernelUnsupported, match="cannot be loaded"):
        load_object(code, ["subtract"])
    caller = """
    declare i64 @crossinfer_nowhere()
    define i64 @add(i64 %a) {
      %r = call i64 @crossinfer_nowhere()
      ret i64 %r
    }
    """
    with pytest.raises(KernelUnsupported, match="cannot be loaded"):
        load_object(compile_object(caller, host_target()), ["add"])


def test_loading_from_many_threads() -> None:
    code = compile_object(ADD.format(3), host_target())
    results: list[int] = []

    def work() -> None:
        for value in range(20):
            loaded = load_object(code, ["add"])
            results.append(call(loaded.address("add"), value) - value)
            del loaded
            gc.collect(0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3] * 80


@pytest.mark.usefixtures("empty_cache")
def test_objects_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []

    def compile_and_count(ir: object, target: object) -> bytes:
        compiled.append(ir)
        return compile_object(ir, target)  # type: ignore[arg-type]

    monkeypatch.setattr(object_cache, "compile_object", compile_and_count)
    for _ in range(3):
        loaded = load_cached(ADD.format(7), host_target(), ["add"])
        assert call(loaded.address("add"), 1) == 8
    assert len(compiled) == 1
    cached_object(ADD.format(8), host_target())
    cached_object(ADD.format(7), PLAIN_ARM)
    assert len(compiled) == 3


@pytest.mark.usefixtures("empty_cache")
def test_generators_run_on_a_miss_only() -> None:
    built: list[int] = []

    def build() -> str:
        built.append(1)
        return ADD.format(9)

    for key in ("add 9", "add 9", "add 9, version 2"):
        loaded = load_generated(key, build, host_target(), ["add"])
        assert call(loaded.address("add"), 1) == 10
    assert len(built) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone", "foreign"])
def test_a_damaged_entry_is_made_again(empty_cache: Path, damage: str) -> None:
    text = ADD.format(11)
    good = cached_object(text, host_target())
    path = entry_path(text, host_target())
    assert path.is_relative_to(empty_cache)
    entry = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(entry[:-10])
        case "flipped":
            path.write_bytes(entry[:-10] + bytes([entry[-10] ^ 1]) + entry[-9:])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "foreign":
            path.write_bytes(b"#!/bin/sh\n" * 100)
    assert cached_object(text, host_target()) == good
    assert path.read_bytes() == entry
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_entries_tell_apart_what_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [*X86_TARGETS, AVX2.for_triple(WINDOWS_X86), *ARM_TARGETS]
    paths = {entry_path("text", machine) for machine in machines}
    paths.add(entry_path("text ", machines[0]))
    monkeypatch.setattr(object_cache, "compiler_version", lambda: "0.0.0")
    paths.add(entry_path("text", machines[0]))
    assert len(paths) == len(machines) + 2
    assert compiler_version().startswith("llvmlite ")
