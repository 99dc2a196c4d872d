"""The plan for people: what runs where, with which kernel, what it takes, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.core.records import record
from crossinfer.core.shapes import format_bytes
from crossinfer.graph.graph import Source
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan, Segment, Step
from crossinfer.plan.split import slot_bytes


@record
class DeviceRow:
    """What a plan takes of one device; sizes are in bytes."""

    device: str
    dispatches: int
    layers: int
    weights: int
    """The slots of streamed layers included."""
    kv_cache: int
    activations: int


@record
class StepRow:
    """One step of a plan: an op on a device, or a transfer between two (then `kernels` is empty).

    `op` is its name in the graph, `bytes` the size of the weights that it reads, or of what is
    transferred.
    """

    op: str
    device: str
    kernels: tuple[str, ...]
    result: str
    bytes: int
    why_not: str
    """Why it is not on a device that is preferred; empty if it is on the first one."""


def explain(plan: Plan) -> str:
    """The plan as lines of text: the devices with their memory, then the steps in order."""
    sentence = split_sentence(plan)
    lines = [_device_line(row) for row in device_rows(plan)]
    return "\n".join((*lines, *([sentence] if sentence else ()), "", *_table(plan)))


def device_rows(plan: Plan) -> list[DeviceRow]:
    """What the plan takes of each device."""
    rows = []
    for number, device in enumerate(plan.devices):
        steps = [s for segment in plan.segments if segment.device == number for s in segment.steps]
        slots = slot_bytes(plan.slots) if number == 0 else 0
        rows.append(
            DeviceRow(
                device=device.info.name,
                dispatches=sum(len(step.lowering.dispatches) for step in steps),
                layers=plan.split.layers.count(number),
                weights=slots + sum(packed_bytes(t, device) for t in plan.constants_on(number)),
                kv_cache=sum(packed_bytes(t, device) for t in plan.states_on(number)),
                activations=plan.arenas[number].size,
            )
        )
    return rows


def step_rows(plan: Plan) -> list[StepRow]:
    """The steps in order, each transfer before the step that needs it."""
    return [row for segment in plan.segments for row in _segment_rows(plan, segment)]


def split_sentence(plan: Plan) -> str | None:
    """Which layers are where, in a sentence; None if all of them are kept on one device."""
    split, names = plan.split, [device.info.name for device in plan.devices]
    if split.streamed:
        kept = len(split.layers) - len(split.streamed)
        slots, size = min(2, len(split.streamed)), format_bytes(slot_bytes(plan.slots))
        where = f"{kept} of {len(split.layers)} layers are kept on {names[0]}, "
        where += f"{len(split.streamed)} are streamed to it through {slots} slots of {size} in all"
    elif len(set(split.layers)) > 1 or {split.embedding, split.head} - set(split.layers):
        counts = [(name, split.layers.count(number)) for number, name in enumerate(names)]
        parts = [f"{count} on {name}" for name, count in counts if count]
        where = f"Of {len(split.layers)} layers {' and '.join(parts)}"
    else:
        return None
    return f"{where}; embedding on {names[split.embedding]}, head on {names[split.head]}."


def _device_line(row: DeviceRow) -> str:
    return (
        f"{row.device}: {row.dispatches} dispatches, weights {format_bytes(row.weights)}, "
        f"KV cache {format_bytes(row.kv_cache)}, activations {format_bytes(row.activations)}"
    )


def _segment_rows(plan: Plan, segment: Segment) -> Iterator[StepRow]:
    name = plan.devices[segment.device].info.name
    for transfer in segment.transfers:
        source = plan.devices[transfer.source].info.name
        kind = transfer.tensor.type
        size = kind.storage.bytes_for(kind.shape)
        yield StepRow(transfer.tensor.name, f"{source} → {name}", (), str(kind), size, "")
    for step in segment.steps:
        made = ", ".join(str(tensor.type) for tensor in step.node.outputs.values())
        kernels = step.lowering.kernel_names
        size = _weight_bytes(plan, segment.device, step)
        yield StepRow(step.node.name, name, kernels, made, size, step.reason)


def _weight_bytes(plan: Plan, device: int, step: Step) -> int:
    tensors = {t for t in step.node.inputs.values() if t.source is Source.CONSTANT}
    return sum(packed_bytes(tensor, plan.devices[device]) for tensor in tensors)


def _table(plan: Plan) -> list[str]:
    header = ("op", "device", "kernel", "bytes", "result", "why not elsewhere")
    rows = [
        (
            _short(row.op),
            row.device,
            " ".join(row.kernels) or "(transfer)",
            format_bytes(row.bytes) if row.bytes else "",
            row.result,
            row.why_not,
        )
        for row in step_rows(plan)
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [_line(row, widths) for row in (header, *rows)]


def _short(name: str) -> str:
    """A fused node's name, which is those of its parts, with what they share said once."""
    first, *others = [part.split(".") for part in name.split("+")]
    shown = [name.split("+")[0]]
    for part in others:
        shared = next(
            (n for n, (a, b) in enumerate(zip(first, part, strict=False)) if a != b), len(part) - 1
        )
        shown.append(".".join(part[shared:]))
    return "+".join(shown)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if number == 3 else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
