"""Kernels, dispatches, and what an op is lowered to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from crossinfer.core.records import entity, record
from crossinfer.formats.activations import Rounding
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Access, Binding, Role, View

MAX_BINDINGS = 14
"""With the constants they fit a Direct3D 12 root signature of 64 words, two words a view."""
MAX_CONSTANT_BYTES = 128

Grid = tuple[int, int, int]


@entity
class Kernel:
    """A compiled function of one device. `name` tells family and variant, as `linear[q4_1]`.

    The name is what faults, verdicts and timelines go by; `handle` is the backend's. `per_shape`:
    the driver makes something else of it for each shape, so that a verdict on one tells nothing of
    another.
    """

    name: str
    handle: object
    per_shape: bool = False


@record
class Dispatch:
    """One run of a kernel over a grid of workgroups.

    `label` and `shape` (see `shape_text`) tell people, and whoever looks for a guilty kernel, what
    it is a part of.
    """

    kernel: Kernel
    bindings: tuple[Binding, ...]
    constants: bytes = b""
    grid: Grid = (1, 1, 1)
    label: str = ""
    shape: str = ""


@record
class Operand:
    """The type of an op's operand: what a device must know to choose kernels."""

    shape: tuple[int, ...]
    storage: StorageType
    role: Role = Role.PLAIN

    def __hash__(self) -> int:
        # That of a storage takes long, and plans look up many operands, which shapes tell apart.
        return hash(self.shape)

    def __str__(self) -> str:
        return f"{self.storage.label}[{'x'.join(map(str, self.shape))}]"


def shape_text(operands: Mapping[str, Operand]) -> str:
    """The shapes of an op's operands, as verdicts name them: `x 5x64, weight 32x64`."""
    return ", ".join(f"{name} {'x'.join(map(str, o.shape))}" for name, o in operands.items())


class OpDescription(Protocol):
    """What the HAL knows of an op. Backends know the ops themselves, from `graph`."""

    @property
    def name(self) -> str: ...


@record
class Argument:
    """A binding that is still to be given a view: an operand by name, or scratch memory.

    The dispatch sees `size` bytes of it (None: to its end) from `offset` on.
    """

    operand: str
    access: Access
    offset: int = 0
    size: int | None = None

    def bind(self, views: Mapping[str, View]) -> Binding:
        """The binding, given the views by name."""
        view = views[self.operand]
        if self.offset or self.size is not None:
            size = view.size - self.offset if self.size is None else self.size
            view = View(view.buffer, view.offset + self.offset, size)
        return Binding(view, self.access)


@record
class LoweredDispatch:
    """A dispatch whose arguments are named operands of the op, or names in `Lowering.scratch`."""

    kernel: Kernel
    arguments: tuple[Argument, ...]
    constants: bytes = b""
    grid: Grid = (1, 1, 1)


@record
class Lowering:
    """One way to run an op on a device: dispatches, and scratch memory (name to bytes).

    `quantized` tells the operands that the kernels round before they compute, and how: their
    result is that of the op on the rounded operands. Of an x with a folded norm, x · norm_weight is
    rounded, and divided by the root afterwards. `in_half`: it computes on operands and results
    rounded to float16, as somebody asked it to.
    """

    dispatches: tuple[LoweredDispatch, ...]
    scratch: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quantized: Mapping[str, Rounding] = dataclasses.field(default_factory=dict)
    in_half: bool = False

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(dispatch.kernel.name for dispatch in self.dispatches)

    def bind(
        self, views: Mapping[str, View], label: str = "", shape: str = ""
    ) -> tuple[Dispatch, ...]:
        """The dispatches over these operands and this scratch memory, given by name."""
        return tuple(
            Dispatch(
                lowered.kernel,
                tuple(argument.bind(views) for argument in lowered.arguments),
                lowered.constants,
                lowered.grid,
                label,
                shape,
            )
            for lowered in self.dispatches
        )
