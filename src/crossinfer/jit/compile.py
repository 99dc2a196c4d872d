"""LLVM IR to object code, and object code to functions in memory.

Compiling works for every target that the installed LLVM knows; loading, for the host's. LLVM is a
large library, so it is loaded when something must be compiled, and not to load what was compiled
before.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import llvmlite

from crossinfer.core.errors import KernelUnsupported
from crossinfer.jit.elf import LinkError
from crossinfer.jit.locks import lock_that_forks_wait_for
from crossinfer.jit.machine_code import LoadedCode, load_elf
from crossinfer.jit.target import Target

_names = itertools.count()
_link_lock = lock_that_forks_wait_for()


@functools.cache
def compiler_version() -> str:
    """What tells one LLVM from another without loading it: llvmlite's version, its library's size.

    As `llvmlite 0.48.0 (54321)`. Most bring their LLVM along, but some are built with the system's.
    """
    folder = Path(llvmlite.__file__).parent / "binding"
    sizes = sorted(path.stat().st_size for path in folder.glob("*llvmlite.*"))
    return f"llvmlite {llvmlite.__version__} ({'+'.join(map(str, sizes))})"


def compile_object(ir: object, target: Target) -> bytes:
    """The object file of a module, given as text or as an llvmlite module.

    Raises KernelUnsupported if the IR is not valid, or this LLVM lacks the target.
    """
    module, machine = _optimised(str(ir), target)
    return bytes(machine.emit_object(module))


def compile_assembly(ir: object, target: Target) -> str:
    """The assembly text of the code that `compile_object` makes, to be looked at."""
    module, machine = _optimised(str(ir), target)
    return str(machine.emit_assembly(module))


def load_object(code: bytes, symbols: Iterable[str]) -> LoadedCode:
    """Loads an object for this machine and finds its `symbols`.

    Undefined symbols are taken from the libraries of this process. Raises KernelUnsupported if one
    is missing, or the object is damaged.
    """
    wanted = list(symbols)
    try:
        return load_elf(code, wanted)
    except LinkError:
        return link_by_llvm(code, wanted)


def link_by_llvm(code: bytes, symbols: Iterable[str]) -> LoadedCode:
    """As `load_object`, by LLVM's linker, which knows all objects of this machine."""
    wanted = list(symbols)
    builder = _binding().JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in wanted:
        builder.export_symbol(symbol)
    try:
        with _link_lock:
            library = builder.link(_linker(), f"crossinfer.{next(_names)}")
    except RuntimeError as error:
        raise KernelUnsupported(f"Compiled code cannot be loaded: {error}") from error
    return LoadedCode({symbol: int(library[symbol]) for symbol in wanted}, library)


def _optimised(ir: str, target: Target) -> tuple[Any, Any]:
    """The verified, optimised module and the machine to emit it for."""
    binding = _binding()
    machine = _machine(target)
    try:
        module = binding.parse_assembly(ir)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise KernelUnsupported(f"The kernel's code is not valid LLVM IR: {error}") from error
    # Generated loops are vectorised and unrolled already, as far as that pays.
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module, machine


def _machine(target: Target) -> Any:
    """A new target machine; they are not thread-safe, so nobody shares one."""
    _initialize()
    try:
        return (
            _binding()
            .Target.from_triple(target.triple)
            .create_target_machine(
                cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
            )
        )
    except RuntimeError as error:
        raise KernelUnsupported(f"LLVM has no target {target.triple}: {error}") from error


@functools.cache
def _initialize() -> None:
    binding = _binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@functools.cache
def _linker() -> Any:
    """The one linker of this process; it loads each object as a library of its own."""
    binding = _binding()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    if sys.platform == "win32":
        # WaitOnAddress and its kin; no library that Python itself loads has them.
        binding.load_library_permanently("api-ms-win-core-synch-l1-2-0.dll")
    return binding.create_lljit_compiler()


def _binding() -> Any:
    from llvmlite import binding

    return binding
