"""Which barriers the commands of one list need, from the states of its buffers.

A buffer is in the state COMMON when a list starts, whatever earlier lists did: it decays when an
ExecuteCommandLists ends, and every list here is executed by a call of its own. From COMMON, the
first access promotes it; so does a further kind of read while it was only ever promoted to reads.
Everything else takes a transition, and accesses through UAVs that follow each other take a UAV
barrier where the HAL's hazard tracker finds a hazard. The tracker is asked buffer by buffer, since
a barrier of Direct3D 12 speaks of one buffer. Memory for upload and readback is in one state for
ever and is not asked about.

See "Using Resource Barriers to Synchronize Resource States in Direct3D 12" in Microsoft's
documentation: its sections on implicit state transitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from crossinfer.backends.d3d12.constants import State
from crossinfer.hal.buffer import Binding
from crossinfer.hal.hazards import HazardTracker

_READS = State.NON_PIXEL_SHADER_RESOURCE | State.COPY_SOURCE


@dataclasses.dataclass(frozen=True)
class Use:
    """What a command does with a resource (by address): the state that it needs to be in.

    `binding` says which bytes, where that state is UNORDERED_ACCESS.
    """

    resource: int
    state: State
    binding: Binding | None = None


@dataclasses.dataclass(frozen=True)
class Transition:
    resource: int
    before: State
    after: State


@dataclasses.dataclass(frozen=True)
class UavBarrier:
    """Accesses through UAVs before it finish before those that follow. None: of all resources."""

    resource: int | None


BarrierRecord = Transition | UavBarrier


@dataclasses.dataclass
class _Known:
    """A resource that the list has used."""

    state: State
    promoted: bool
    accesses: HazardTracker
    """Through UAVs, since the last barrier on it."""


class StateTracker:
    """Follows the buffers of one command list, from its start."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._drained = True

    def before(self, uses: Iterable[Use]) -> list[BarrierRecord]:
        """The barriers that a command with these uses needs before it; records the uses.

        A resource may be used in several ways by one command only if they need the same state.
        """
        states: dict[int, State] = {}
        bindings: dict[int, list[Binding]] = {}
        for use in uses:
            state = states.setdefault(use.resource, use.state)
            assert state == use.state, "a buffer is in one state at a time"
            if use.binding is not None:
                bindings.setdefault(use.resource, []).append(use.binding)
        self._drained = False
        made: list[BarrierRecord] = []
        for resource, state in states.items():
            transition = self._change(resource, state)
            hazard = self._known[resource].accesses.before(bindings.get(resource, ()))
            if transition is not None:
                made.append(transition)
            elif hazard is not None:
                made.append(UavBarrier(resource))
        return made

    def drain(self) -> list[BarrierRecord]:
        """The barrier after which everything that was dispatched has finished."""
        if self._drained:
            return []
        self._drained = True
        for known in self._known.values():
            known.accesses.clear()
        return [UavBarrier(None)]

    def _change(self, resource: int, state: State) -> Transition | None:
        known = self._known.get(resource)
        if known is None:
            self._known[resource] = _Known(state, True, HazardTracker())
            return None
        if state in known.state:
            return None
        if known.promoted and known.state in _READS and state in _READS:
            known.state |= state
            return None
        self._known[resource] = _Known(state, False, HazardTracker())
        return Transition(resource, known.state, state)
