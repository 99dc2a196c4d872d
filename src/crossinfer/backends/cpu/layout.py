"""The memory that the native processor and Python share, told once for both.

`NAMES` are the numbers that the code in `native/` is written with: offsets, sizes and codes.
"""

from __future__ import annotations

import numpy as np

from crossinfer.aql import packets, signals

CACHE_LINE = 128
"""Bytes between words that different threads write: two lines, since processors fetch pairs."""

_QUEUE_WORDS = (
    # Set before the workers start.
    ("ring", np.uint64, 0),
    ("slots", np.uint64, 8),
    ("mask", np.uint64, 16),
    ("workers", np.uint64, 24),
    ("spin_ns", np.uint64, 32),
    ("busy_spin_ns", np.uint64, 40),
    # Written by the submitter.
    ("doorbell", np.uint64, 1 * CACHE_LINE),
    ("write_index", np.uint64, 2 * CACHE_LINE),
    # Written by the workers.
    ("read_index", np.uint64, 3 * CACHE_LINE),
    ("space_waiters", np.uint32, 3 * CACHE_LINE + 8),
    ("space_wanted", np.uint64, 3 * CACHE_LINE + 16),
    ("claim", np.uint64, 4 * CACHE_LINE),
    ("lock", np.uint32, 5 * CACHE_LINE),
    ("at_barrier", np.uint32, 5 * CACHE_LINE + 4),
    ("next", np.uint64, 5 * CACHE_LINE + 8),
    ("in_flight", np.uint64, 6 * CACHE_LINE),
    ("epoch", np.uint32, 7 * CACHE_LINE),
    ("sleepers", np.uint32, 7 * CACHE_LINE + 4),
    ("stop", np.uint32, 8 * CACHE_LINE),
    ("error", np.uint32, 8 * CACHE_LINE + 4),
    ("error_index", np.uint64, 8 * CACHE_LINE + 8),
)

QUEUE = np.dtype(
    {
        "names": [name for name, _, _ in _QUEUE_WORDS],
        "formats": [format_ for _, format_, _ in _QUEUE_WORDS],
        "offsets": [offset for _, _, offset in _QUEUE_WORDS],
        "itemsize": 9 * CACHE_LINE,
    }
)
"""A queue's state, in one piece of memory."""

SLOT = np.dtype(
    {
        "names": ["unfinished", "chunks", "pieces", "workgroups", "start"],
        "formats": [np.uint64] * 5,
        "offsets": [0, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
"""What the workers keep of the packet in a slot of the ring: chunks, workgroups, start in ns."""

NO_CLAIM = 1 << 31
"""The claim of a queue that has handed nothing out: no chunk is left."""

ERROR_FLAG = 1 << 16
"""Set in `error`, over the header of the packet that stopped the queue."""

ROUNDS = 5
"""In which a packet's workgroups are handed out at most: see `native/start.ll`."""
POLL_NS = 1_000_000

_CODES = {
    "claim_bias": -NO_CLAIM,  # as i32
    "claim_bias_64": NO_CLAIM,
    "claim_count_mask": NO_CLAIM - 1,
    "index_mask": (1 << 32) - 1,
    "code_nothing": -1,
    "code_busy": -2,
    "code_blocked": -3,
    "code_progress": -4,
    "error_flag": ERROR_FLAG,
    "rounds": ROUNDS,
    "poll_ns": POLL_NS,
    "header_barrier": 1 << packets.BARRIER_BIT,
    "header_invalid": int(packets.PacketType.INVALID),
    "type_dispatch": int(packets.PacketType.KERNEL_DISPATCH),
    "type_barrier_and": int(packets.PacketType.BARRIER_AND),
    "packet_bytes": packets.PACKET_BYTES,
    "slot_bytes": SLOT.itemsize,
    "barrier_dependency_count": packets.MAX_DEPENDENCIES,
    "signal_value": signals.VALUE_OFFSET,
    "signal_notify": signals.NOTIFY_OFFSET,
    "signal_start": signals.START_OFFSET,
    "signal_end": signals.END_OFFSET,
}


def _offsets(prefix: str, dtype: np.dtype[np.void]) -> dict[str, int]:
    fields = dtype.fields
    assert fields is not None
    return {f"{prefix}_{name}": int(field[1]) for name, field in fields.items()}


NAMES = {
    **_CODES,
    **_offsets("queue", QUEUE),
    **_offsets("slot", SLOT),
    **_offsets("dispatch", packets.KERNEL_DISPATCH),
    **_offsets("barrier", packets.BARRIER_AND),
}
