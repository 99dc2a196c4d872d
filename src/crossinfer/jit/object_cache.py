"""Compiled objects on disk: compiled once per machine, not once per process.

An entry's name is a hash of everything that its contents follow from, so entries never go stale. It
starts with a checksum: an entry that was cut short or damaged is compiled again and replaced. Any
number of processes may share the folder, since entries appear complete or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from crossinfer.core.cache import cache_folder, keep_entry, read_entry
from crossinfer.jit.compile import compile_object, compiler_version, load_object
from crossinfer.jit.machine_code import LoadedCode
from crossinfer.jit.target import Target


def load_cached(ir: object, target: Target, symbols: Iterable[str]) -> LoadedCode:
    """The module's functions in memory, compiled only if no process did so before."""
    return load_object(cached_object(ir, target), symbols)


def load_generated(
    key: str, build: Callable[[], object], target: Target, symbols: Iterable[str]
) -> LoadedCode:
    """As `load_cached`, for IR that takes time to build: `build` is called on a miss only.

    `key` must tell everything that the IR depends on besides the target, the generator's own source
    included.
    """
    return load_object(_cached(key, build, target), symbols)


def cached_object(ir: object, target: Target) -> bytes:
    """What `compile_object` gives, from the cache if it is there. Raises KernelUnsupported."""
    text = str(ir)
    return _cached(text, lambda: text, target)


def _cached(key: str, build: Callable[[], object], target: Target) -> bytes:
    path = entry_path(key, target)
    code = read_entry(path)
    if code is None:
        code = compile_object(build(), target)
        keep_entry(path, code)
    return code


def entry_path(key: str, target: Target) -> Path:
    """Where the object of the module with this text or key is kept."""
    whole = "\0".join((compiler_version(), target.triple, target.cpu, target.features, key))
    return cache_folder("jit") / f"{hashlib.sha256(whole.encode()).hexdigest()[:40]}.o"
