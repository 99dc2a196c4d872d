"""The plan for people: what runs where, with which kernel, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.core.shapes import format_bytes
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan, Segment


def explain(plan: Plan) -> str:
    """The plan as lines of text: the devices with their memory, then the steps in order."""
    return "\n".join((*_devices(plan), *_steps(plan)))


def _devices(plan: Plan) -> Iterator[str]:
    for number, device in enumerate(plan.devices):
        weights = sum(packed_bytes(t, device) for t in plan.constants_on(number))
        states = sum(packed_bytes(t, device) for t in plan.states_on(number))
        dispatches = sum(
            len(step.lowering.dispatches)
            for segment in plan.segments
            if segment.device == number
            for step in segment.steps
        )
        yield (
            f"{device.info.name}: {dispatches} dispatches, weights {format_bytes(weights)}, "
            f"KV cache {format_bytes(states)}, "
            f"activations {format_bytes(plan.arenas[number].size)}"
        )


def _steps(plan: Plan) -> Iterator[str]:
    for segment in plan.segments:
        yield from _segment(plan, segment)


def _segment(plan: Plan, segment: Segment) -> Iterator[str]:
    name = plan.devices[segment.device].info.name
    for transfer in segment.transfers:
        source = plan.devices[transfer.source].info.name
        yield f"  {transfer.tensor.name}: from {source} to {name}, {transfer.tensor.type}"
    for step in segment.steps:
        made = ", ".join(str(tensor.type) for tensor in step.node.outputs.values())
        kernels = " ".join(step.lowering.kernel_names)
        because = f"  (not on {step.reason})" if step.reason else ""
        yield f"  {step.node.name:<40} {name:<12} {kernels:<20} → {made}{because}"
