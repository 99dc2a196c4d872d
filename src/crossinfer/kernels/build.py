"""`python -m crossinfer.kernels.build [FOLDER]`: fetches DXC if needed and compiles every shader.

The results go to the cache; with a folder, copies go there (`crossinfer/kernels/compiled` in a
wheel).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from crossinfer.core.cache import write_entry
from crossinfer.core.errors import CrossinferError
from crossinfer.kernels.binary import cached_binary, entry_name, is_cached
from crossinfer.kernels.catalog import all_shaders
from crossinfer.kernels.fetch_dxc import fetch_library
from crossinfer.kernels.shader import ShaderKernel, Target


def build(folder: Path | None = None) -> int:
    """Compile what the cache lacks; returns how many there are in all. Raises KernelUnsupported."""
    work = list(itertools.product(all_shaders(), Target))
    missing = [item for item in work if not is_cached(*item)]
    if missing:
        fetch_library()
        with ProcessPoolExecutor() as pool:
            list(pool.map(_compile, missing))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for kernel, target in work:
            write_entry(folder / entry_name(kernel, target), cached_binary(kernel, target))
    return len(work)


def _compile(item: tuple[ShaderKernel, Target]) -> None:
    cached_binary(*item)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m crossinfer.kernels.build")
    parser.add_argument("folder", type=Path, nargs="?", help="also copy the compiled shaders here")
    folder = parser.parse_args(arguments).folder
    start = time.perf_counter()
    try:
        count = build(folder)
    except CrossinferError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} compiled shaders are there, after {time.perf_counter() - start:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
