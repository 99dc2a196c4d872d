"""What the encoder records besides shaders: operators of a library, which record themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from crossinfer.backends.d3d12.com import ComObject


@dataclasses.dataclass(frozen=True)
class Place:
    """Bytes of a resource that a dispatch is to see."""

    resource: ComObject
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class DescriptorRange:
    """Entries of the heap that the command list has set: where the first one lies."""

    cpu: int
    gpu: int
    count: int


@runtime_checkable
class Operator(Protocol):
    """The handle of a kernel that is no shader.

    The encoder brings every view into UNORDERED_ACCESS, also those that are only read, and sets a
    shader-visible heap with a range of its own for each dispatch. It sets root signature and
    pipeline again afterwards. The recording keeps the heap and the operator alive.
    """

    @property
    def name(self) -> str: ...

    @property
    def descriptors(self) -> int:
        """Entries of the heap that one dispatch takes."""

    def prepare(self) -> None:
        """What the device must have done before the first dispatch; may submit and wait."""

    def record(
        self, commands: ComObject, places: Sequence[Place], descriptors: DescriptorRange
    ) -> None:
        """Record a dispatch over the views of its bindings, in their order."""
