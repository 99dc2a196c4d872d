"""What a device was given to run and has not ended: recordings, and copies of host memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from crossinfer.core.errors import DeviceError, InFlight

if TYPE_CHECKING:
    from crossinfer.hal.buffer import Buffer
    from crossinfer.hal.fence import Fence
    from crossinfer.hal.host_memory import HostCopy, HostMemory
    from crossinfer.hal.recording import Recording


class Submissions:
    """Those of one device. Added to under its lock; asked by any thread."""

    def __init__(self) -> None:
        self._recordings: list[Recording] = []
        self._copies: list[HostCopy] = []

    def add(self, recording: Recording, fence: Fence) -> None:
        """`recording` is in flight until `fence` is signalled."""
        # In this order: with its new fence, the recording's entry from an earlier submission
        # would count as pending again, and the list would grow with every replay.
        self._recordings = [*(r for r in self._recordings if r.in_flight), recording]
        recording.fence = fence

    def add_copy(self, copy: HostCopy, fence: Fence) -> None:
        """`copy` is in flight until `fence` is signalled."""
        self._copies = [*(c for c in self._copies if c.in_flight), copy]
        copy.fence = fence

    def pending(self) -> list[Recording]:
        """Those in flight: recordings, then copies."""
        started: list[Recording] = [*self._recordings, *self._copies]
        return [recording for recording in started if recording.in_flight]

    def runs(self) -> tuple[InFlight, ...]:
        """The dispatches in flight, alike ones once."""
        return tuple(dict.fromkeys(run for r in self.pending() for run in r.runs))

    def uses(self, buffer: Buffer) -> bool:
        """Whether something in flight uses `buffer`."""
        return any(buffer in recording.buffers for recording in self.pending())

    def recordings_use(self, buffer: Buffer) -> bool:
        """Whether a recording in flight does, whatever copies do."""
        return any(buffer in r.buffers for r in self._recordings if r.in_flight)

    def reads(self, memory: HostMemory) -> bool:
        """Whether a copy out of `memory` runs."""
        return any(copy.source is memory for copy in self._copies if copy.in_flight)

    def wait_for_recordings(self) -> None:
        """Whoever holds a fence hears from it what went wrong."""
        _wait(self._recordings)

    def wait_for_copies(self) -> None:
        """As for recordings."""
        _wait(self._copies)

    def fail(self, error: DeviceError) -> None:
        """Signal everything in flight with `error`."""
        for recording in self.pending():
            if recording.fence is not None:
                recording.fence.signal(error)


def _wait(started: list[Recording] | list[HostCopy]) -> None:
    for recording in [recording for recording in started if recording.in_flight]:
        if recording.fence is not None:
            with contextlib.suppress(DeviceError):
                recording.fence.wait()
