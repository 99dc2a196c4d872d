"""Resource states: what is recorded follows the documented rules, and the witness sees what does
not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from tests.backends.d3d12.strict_recorder import StrictRecorder
from tests.conformance.programs import TOLERANCE, random_program
from tests.d3d12_driver import open_d3d12_or_skip
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.d3d12 import D3D12Device, encode
from crossinfer.backends.d3d12.constants import State
from crossinfer.backends.d3d12.states import (
    BarrierRecord,
    StateTracker,
    Transition,
    UavBarrier,
    Use,
)
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.hal.buffer import Access, Binding, View
from crossinfer.models.model import load_model

UAV, SRV = State.UNORDERED_ACCESS, State.NON_PIXEL_SHADER_RESOURCE
SOURCE, DEST = State.COPY_SOURCE, State.COPY_DEST
TOKENS = np.random.default_rng(5).integers(0, 300, 24).tolist()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_a_prefill_and_a_decode_step_follow_the_rules(
    strict: StrictRecorder, strict_device: D3D12Device, tiny_models: TinyModels, name: str
) -> None:
    model = load_model(tiny_models(name, "q4_k"))
    with step_runner(model, [strict_device]) as runner:
        logits_of(runner, TOKENS, [20, 21, 22])
        chunk = Chunk(TOKENS[:5], 5, [7], [4])
        runner.run(Batch((chunk,)), timed=True)
        assert strict.barrier_count() > 20
    assert strict.executions > 10


def test_the_engine_copies_nothing_aside(
    device: D3D12Device, monkeypatch: pytest.MonkeyPatch, tiny_models: TinyModels
) -> None:
    """Tensors that live at the same time have buffers of their own."""
    made: list[int] = []
    monkeypatch.setattr(encode, "create_buffer", lambda _device, _heap, size: made.append(size))
    model = load_model(tiny_models("tiny-llama", "q4_k"))
    with step_runner(model, [device]) as runner:
        logits_of(runner, TOKENS, [20, 21, 22])
    assert made == []


@pytest.mark.parametrize("length", [20, 3 * encode.PART_COMMANDS + 5])
def test_random_programs_follow_the_rules(strict_device: D3D12Device, length: int) -> None:
    """Half of their tensors share a buffer, so that much is copied aside."""
    for seed in range(3):
        program = random_program(strict_device, np.random.default_rng(seed), length)
        assert program.run() < TOLERANCE
        program.free()


class _Mutation:
    """Changes what the tracker of states finds: `change` gets the barriers before a command."""

    def __init__(self, change: Callable[[StateTracker, list[BarrierRecord]], None]) -> None:
        self.strikes = 0
        self._change = change

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = StateTracker.before

        def before(tracker: StateTracker, uses: Iterable[Use]) -> Sequence[BarrierRecord]:
            uses = list(uses)
            found = list(right(tracker, uses))
            count = len(found)
            self._change(tracker, found)
            self.strikes += len(found) != count
            return found

        monkeypatch.setattr(StateTracker, "before", before)


def _without(kind: Callable[[BarrierRecord], bool]) -> _Mutation:
    def change(_tracker: StateTracker, found: list[BarrierRecord]) -> None:
        for record in found:
            if kind(record):
                found.remove(record)
                return

    return _Mutation(change)


def _is_transition(before: State, after: State) -> Callable[[BarrierRecord], bool]:
    return lambda r: isinstance(r, Transition) and r.before in before and r.after is after


def _is_uav(record: BarrierRecord) -> bool:
    return isinstance(record, UavBarrier)


def _add_uav_barrier(tracker: StateTracker, found: list[BarrierRecord]) -> None:
    """On a buffer that the command is the first to use by UAV, or that nothing uses again."""
    unused = [r for r, k in tracker._known.items() if k.state is UAV]
    named = {record.resource for record in found}
    found += [UavBarrier(resource) for resource in unused if resource not in named][:1]


def _add_transition(tracker: StateTracker, found: list[BarrierRecord]) -> None:
    """To COMMON and never back: as if states did not decay by themselves."""
    named = {record.resource for record in found}
    for resource, known in tracker._known.items():
        if known.state is SRV and resource not in named:
            found.append(Transition(resource, SRV, SRV | SOURCE))
            return


REMOVED_FROM_A_STEP = {
    "UAV to SRV": _is_transition(UAV, SRV),
    "SRV to UAV": _is_transition(SRV, UAV),
    "UAV barrier": _is_uav,
}
REMOVED_FROM_A_PROGRAM = {
    **REMOVED_FROM_A_STEP,
    "UAV to copy source": _is_transition(UAV, SOURCE),
    "UAV to copy target": _is_transition(UAV, DEST),
    "copy target to SRV": _is_transition(DEST, SRV),
    "copy target to UAV": _is_transition(DEST, UAV),
    "copy target to copy source": _is_transition(DEST, SOURCE),
    "reads to copy target": _is_transition(SRV | SOURCE, DEST),
}
ADDED = {"UAV barrier": _add_uav_barrier, "transition": _add_transition}


@pytest.mark.parametrize("kind", REMOVED_FROM_A_STEP)
def test_a_barrier_missing_from_a_step_is_found(
    strict: StrictRecorder, monkeypatch: pytest.MonkeyPatch, tiny_models: TinyModels, kind: str
) -> None:
    mutation = _without(REMOVED_FROM_A_STEP[kind])
    _step(monkeypatch, tiny_models, mutation)
    assert any(text.startswith(("missing", "wrong")) for text in strict.complaints)


@pytest.mark.parametrize("kind", ADDED)
def test_a_barrier_added_to_a_step_is_found(
    strict: StrictRecorder, monkeypatch: pytest.MonkeyPatch, tiny_models: TinyModels, kind: str
) -> None:
    _step(monkeypatch, tiny_models, _Mutation(ADDED[kind]))
    assert any(text.startswith("redundant") for text in strict.complaints)


@pytest.mark.parametrize("kind", REMOVED_FROM_A_PROGRAM)
def test_a_barrier_missing_from_a_program_is_found(
    strict: StrictRecorder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mutation = _without(REMOVED_FROM_A_PROGRAM[kind])
    mutation.install(monkeypatch)
    with open_d3d12_or_skip() as device:
        for seed in range(8):
            random_program(device, np.random.default_rng(seed), 31).run()
            if mutation.strikes:
                break
    assert mutation.strikes
    assert any(text.startswith(("missing", "wrong")) for text in strict.complaints)


def _step(
    monkeypatch: pytest.MonkeyPatch,
    tiny_models: TinyModels,
    mutation: _Mutation,
) -> None:
    mutation.install(monkeypatch)
    model = load_model(tiny_models("tiny-llama", "q4_k"))
    with step_runner(model, [open_d3d12_or_skip()]) as runner:
        logits_of(runner, TOKENS, [20, 21, 22])
    assert mutation.strikes


class _Memory:
    """Enough of a buffer for a view."""

    size_in_bytes = 1024


def _binding(memory: object, start: int, access: Access) -> Binding:
    return Binding(View(memory, start, 256), access)  # type: ignore[arg-type]


def test_a_list_starts_from_common_and_promotes() -> None:
    states = StateTracker()
    assert states.before([Use(1, SRV), Use(2, UAV), Use(3, SOURCE), Use(4, DEST)]) == []
    assert states.before([Use(1, SOURCE)]) == []  # a further read, while it was only promoted
    assert states.before([Use(1, UAV)]) == [Transition(1, SRV | SOURCE, UAV)]
    assert states.before([Use(1, SRV)]) == [Transition(1, UAV, SRV)]
    assert states.before([Use(1, SRV)]) == []
    assert states.before([Use(1, SOURCE)]) == [Transition(1, SRV, SOURCE)]  # not promoted now
    assert states.before([Use(4, DEST), Use(3, SOURCE)]) == []
    assert StateTracker().before([Use(1, UAV)]) == []  # the next list knows nothing of this one


def test_hazards_between_uavs_are_judged_by_bytes_and_by_buffer() -> None:
    states, a, b = StateTracker(), _Memory(), _Memory()
    write = Access.WRITE
    first = [
        Use(1, UAV, _binding(a, 0, write)),
        Use(1, UAV, _binding(a, 256, write)),
        Use(2, UAV, _binding(b, 0, write)),
    ]
    assert states.before(first) == []
    assert states.before([Use(1, UAV, _binding(a, 512, write))]) == []
    again = [Use(1, UAV, _binding(a, 0, Access.READ_WRITE))]
    assert states.before(again) == [UavBarrier(1)]
    # A barrier of the HAL would have covered the other buffer too; this one does not.
    assert states.before([Use(2, UAV, _binding(b, 0, Access.READ))]) == [UavBarrier(2)]
    assert states.before([Use(2, UAV, _binding(b, 0, Access.READ))]) == []


def test_a_timestamp_waits_once() -> None:
    states, a = StateTracker(), _Memory()
    assert states.drain() == []
    states.before([Use(1, UAV, _binding(a, 0, Access.WRITE))])
    assert states.drain() == [UavBarrier(None)]
    assert states.drain() == []
    assert states.before([Use(1, UAV, _binding(a, 0, Access.READ))]) == []
