"""What a `Kernel` of the CPU is: a native function with the kernel ABI of CONTRACT.md.

    void kernel(const void *kernarg, uint64 first_workgroup, uint64 workgroups, uint32 worker)

The kernarg block is 64-byte aligned: eight u64 addresses of the dispatch's views (unused ones 0),
then its constants. Workgroups are counted x + gx·(y + gy·z).
"""

from __future__ import annotations

from crossinfer.core.records import record
from crossinfer.jit.machine_code import LoadedCode

CONSTANTS_OFFSET = 64


@record
class CpuKernel:
    """A function in memory; `code` keeps it there."""

    address: int
    code: LoadedCode
