"""Kernels, dispatches, and what an op is lowered to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from crossinfer.formats.activations import ActivationBlocks
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Access, Binding, Role, View

MAX_BINDINGS = 8
MAX_CONSTANT_BYTES = 128

Grid = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled function of one device. `name` tells family and variant, as `linear[q4_1]`.

    The name is what faults, verdicts and timelines go by; `handle` is the backend's.
    """

    name: str
    handle: object


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """One run of a kernel over a grid of workgroups."""

    kernel: Kernel
    bindings: tuple[Binding, ...]
    constants: bytes = b""
    grid: Grid = (1, 1, 1)
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Operand:
    """The type of an op's operand: what a device must know to choose kernels."""

    shape: tuple[int, ...]
    storage: StorageType
    role: Role = Role.PLAIN

    def __str__(self) -> str:
        return f"{self.storage.label}[{'x'.join(map(str, self.shape))}]"


class OpDescription(Protocol):
    """What the HAL knows of an op. Backends know the ops themselves, from `graph`."""

    @property
    def name(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Argument:
    """A binding that is still to be given a view: an operand by name, or scratch memory."""

    operand: str
    access: Access


@dataclasses.dataclass(frozen=True)
class LoweredDispatch:
    """A dispatch whose arguments are named operands of the op, or names in `Lowering.scratch`."""

    kernel: Kernel
    arguments: tuple[Argument, ...]
    constants: bytes = b""
    grid: Grid = (1, 1, 1)


@dataclasses.dataclass(frozen=True)
class Lowering:
    """One way to run an op on a device: dispatches, and scratch memory (name to bytes).

    `quantized` tells the operands that the kernels round before they compute, and how: their
    result is that of the op on the rounded operands.
    """

    dispatches: tuple[LoweredDispatch, ...]
    scratch: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quantized: Mapping[str, ActivationBlocks] = dataclasses.field(default_factory=dict)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(dispatch.kernel.name for dispatch in self.dispatches)

    def bind(self, views: Mapping[str, View], label: str = "") -> tuple[Dispatch, ...]:
        """The dispatches over these operands and this scratch memory, given by name."""
        return tuple(
            Dispatch(
                lowered.kernel,
                tuple(Binding(views[a.operand], a.access) for a in lowered.arguments),
                lowered.constants,
                lowered.grid,
                label,
            )
            for lowered in self.dispatches
        )
