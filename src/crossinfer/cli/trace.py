"""Timelines of kernels: totals by kernel, and the trace format that browsers show.

The format is Chrome's "Trace Event Format": open the file at chrome://tracing or ui.perfetto.dev.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossinfer.hal.timer import TimedKernel


@dataclasses.dataclass(frozen=True)
class KernelTotal:
    """All runs of one kernel together; `share` is of the time of all kernels, 0 to 1."""

    name: str
    runs: int
    total_ms: float
    share: float


def totals(kernels: Sequence[TimedKernel]) -> list[KernelTotal]:
    """One total for each kernel name, the longest first."""
    times: dict[str, list[float]] = {}
    for kernel in kernels:
        times.setdefault(kernel.name, []).append(kernel.duration_s)
    everything = sum(map(sum, times.values()))
    found = [
        KernelTotal(name, len(runs), sum(runs) * 1e3, sum(runs) / everything if everything else 0.0)
        for name, runs in times.items()
    ]
    return sorted(found, key=lambda total: -total.total_ms)


def chrome_trace(kernels: Sequence[TimedKernel]) -> dict[str, Any]:
    """The kernels as trace events, one track for each device, in microseconds."""
    tracks = {name: number for number, name in enumerate(dict.fromkeys(k.device for k in kernels))}
    names = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": track, "args": {"name": device}}
        for device, track in tracks.items()
    ]
    runs = [
        {
            "ph": "X",
            "name": kernel.name,
            "cat": "kernel",
            "pid": 0,
            "tid": tracks[kernel.device],
            "ts": kernel.start_s * 1e6,
            "dur": kernel.duration_s * 1e6,
            "args": {"node": kernel.label},
        }
        for kernel in kernels
    ]
    return {"traceEvents": [*names, *runs], "displayTimeUnit": "ms"}
