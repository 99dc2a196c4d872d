"""How long a model takes to load, and the memory that it takes then.

    python -m benchmarks.loading MODEL.gguf [...] [--threads N] [--repeat 3]
    python -m benchmarks.loading --make qwen2.5-1.5b:q8_0

Each load is a process of its own, and the median is told: seconds and GB/s of the weights (from the
mapped file into tiles), seconds of `LLM(path, device="cpu")` as a whole; resident memory
afterwards, in MB and as a multiple of the file, and the most at any time. Beside it, on one core:
how fast this process reads the file, which says whether the disk or memory is behind it; copies
memory that it has; and is given memory by the system, which can be slower than all else in a
virtual machine. `--make` writes a model with random weights first, as `crossinfer.testing.models`
does, and removes it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crossinfer.testing.models import write_model

_CHUNK_BYTES = 1 << 22
_LOAD = """
import json, sys, time
from pathlib import Path
from crossinfer import LLM

def status(key):
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition(key + ":")[2].split()[0])

ticks = []

def progress(task, done, total):
    if task == "Loading weights":
        ticks.append((time.perf_counter(), total))

start = time.perf_counter()
llm = LLM(sys.argv[1], device="cpu", threads=int(sys.argv[2]) or None, progress=progress)
whole = time.perf_counter() - start
weights = ticks[-1][0] - ticks[0][0]
print(json.dumps([weights, ticks[-1][1], whole, status("VmRSS"), status("VmHWM")]))
"""


def read_speed(path: Path) -> float:
    """Bytes a second of one thread that reads the file into a small buffer."""
    buffer = bytearray(_CHUNK_BYTES)
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return path.stat().st_size / (time.perf_counter() - start)


def copy_speed() -> float:
    """Bytes a second of one thread that copies memory which no cache holds."""
    source = np.ones(1 << 28, dtype=np.uint8)
    target = np.zeros_like(source)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - start)
    return source.size / min(times)


def fresh_speed(size: int) -> float:
    """Bytes a second at which one thread is given new memory, in large pages."""
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        start = time.perf_counter()
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
        return size / (time.perf_counter() - start)


def load(path: Path, threads: int, repeat: int) -> list[float]:
    """Medians of what `_LOAD` prints, and of the speed of new memory just before.

    One load before them compiles what must be compiled. A virtual machine may have to ask for
    memory that was free for some seconds; memory that the probe has just given back it has.
    """
    command = [sys.executable, "-c", _LOAD, str(path), str(threads)]
    rows = []
    for _ in range(repeat + 1):
        fresh = fresh_speed(path.stat().st_size * 5 // 4)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append([*json.loads(done.stdout.splitlines()[-1]), fresh])
    return [statistics.median(values) for values in zip(*rows[1:], strict=True)]


def made(wanted: list[str], folder: Path) -> Iterator[Path]:
    for spelled in wanted:
        name, _, storage = spelled.partition(":")
        yield write_model(name, storage, folder / f"{name}-{storage}.gguf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--make", nargs="*", default=[], metavar="NAME:FORMAT")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"copying memory, one core: {copy_speed() / 1e9:.1f} GB/s")
    with tempfile.TemporaryDirectory() as folder:
        for path in (*options.models, *made(options.make, Path(folder))):
            size = path.stat().st_size
            measured = load(path, options.threads, options.repeat)
            weights, total, whole, resident, most, fresh = measured
            print(
                f"{path.name} {size / 1e6:.0f} MB: weights {weights:.3f} s, "
                f"{total / weights / 1e9:.1f} GB/s; LLM() {whole:.2f} s; resident "
                f"{resident / 1e6:.0f} MB, {resident / size:.2f} of the file; at most "
                f"{most / 1e6:.0f} MB; reading the file {read_speed(path) / 1e9:.1f} GB/s, new "
                f"memory {fresh / 1e9:.1f} GB/s"
            )
            if path.is_relative_to(folder):
                path.unlink()


if __name__ == "__main__":
    main()
