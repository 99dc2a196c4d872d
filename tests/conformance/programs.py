"""Random programs over a few tensors, with what they compute command by command.

Every tensor is a run of rows of one buffer or of its own; commands are copies, and normalisations
with a residual, which read three tensors and write two. Values stay near 1, so that a command that
ran too early or too late shows.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.device import Device
from crossinfer.hal.recording import Recording
from crossinfer.verify.data import Random, random_values

SLOTS, ROWS, SIZE = 8, 2, 32
_SLOT_BYTES = ROWS * SIZE * 4
_COPY_SHARE = 0.3
TOLERANCE = 1e-3
"""Errors of float32 grow along a chain; a wrong order gives errors near 1."""

Command = tuple[int, ...]
"""(source, target) of a copy, or (x, residual, output, sum) of a normalisation."""


@dataclasses.dataclass
class Program:
    """A recorded program on a device, and its state on the host."""

    device: Device
    commands: list[Command]
    recording: Recording
    slots: list[View]
    buffers: list[Buffer]
    state: Array
    weight: Array

    def run(self) -> float:
        """Run once on the device and on the host, and compare all tensors: the largest error."""
        self.device.submit(self.recording).wait()
        for command in self.commands:
            _run_on_host(command, self.state, self.weight)
        found = [np.frombuffer(self.device.download(slot), np.float32) for slot in self.slots]
        return row_error(np.stack(found), self.state.reshape(SLOTS, -1))

    def free(self) -> None:
        for buffer in self.buffers:
            buffer.free()


def random_program(device: Device, rng: Random, length: int = 20) -> Program:
    """A program of `length` commands. Half of the tensors share a buffer."""
    shared = device.alloc((SLOTS // 2 * _SLOT_BYTES // 4,), DType.I32)
    single = [device.alloc((_SLOT_BYTES // 4,), DType.I32) for _ in range(SLOTS - SLOTS // 2)]
    slots = [shared.view(n * _SLOT_BYTES, _SLOT_BYTES) for n in range(SLOTS // 2)]
    slots += [buffer.view() for buffer in single]
    state, weight = random_values(rng, SLOTS, ROWS, SIZE), random_values(rng, SIZE)
    for slot, values in zip(slots, state, strict=True):
        device.write(slot, values)
    stored_weight = device.upload(weight, weight.shape, DType.F32)
    commands = [_random_command(rng) for _ in range(length)]
    recording = _record(device, commands, slots, stored_weight.view())
    buffers = [shared, *single, stored_weight]
    return Program(device, commands, recording, slots, buffers, state, weight)


def _random_command(rng: Random) -> Command:
    count = 2 if rng.random() < _COPY_SHARE else 4
    return tuple(int(slot) for slot in rng.permutation(SLOTS)[:count])


def _record(device: Device, commands: list[Command], slots: list[View], weight: View) -> Recording:
    x = float32(ROWS, SIZE)
    operands = {"x": x, "weight": float32(SIZE), "residual": x, "output": x, "sum": x}
    lowering = device.lower(RmsNorm(1e-5), operands)[0]
    assert not lowering.scratch, "this helper gives no scratch memory"
    recorder = device.recorder()
    for command in commands:
        views = [slots[slot] for slot in command]
        if len(command) == 2:
            recorder.copy_region(*views)
            continue
        bound = dict(zip(("x", "residual", "output", "sum"), views, strict=True))
        for dispatch in lowering.bind({**bound, "weight": weight}):
            recorder.dispatch(dispatch)
    return recorder.finish()


def _run_on_host(command: Command, state: Array, weight: Array) -> None:
    if len(command) == 2:
        state[command[1]] = state[command[0]]
        return
    x, residual, output, total = command
    made = RmsNorm(1e-5).compute({"x": state[x], "residual": state[residual], "weight": weight})
    state[output], state[total] = made["output"], made["sum"]
