"""Sessions over the fakes, and an operator of each kind."""

from __future__ import annotations

from typing import Any

from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.backends.d3d12.directml.fake_d3d12 import FakeD3D12
from tests.backends.d3d12.directml.fake_directml import Behaviour, FakeDirectML

from crossinfer.backends.d3d12.directml.descriptions import Description
from crossinfer.backends.d3d12.directml.operator import DmlOperator
from crossinfer.backends.d3d12.directml.samples import sample_operators
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.operators import Place
from crossinfer.core.dtypes import DType


class Setup:
    """A session on a fake device. `record` records an operator over buffers of exact sizes."""

    def __init__(self, **behaviour: Any) -> None:
        self.world = World()
        self.d3d12 = FakeD3D12(self.world)
        self.library = FakeDirectML(self.world, self.d3d12.of, Behaviour(**behaviour))
        self.session = Session(self.d3d12, self.library.library)

    def places(self, operator: DmlOperator) -> list[Place]:
        """Views that fit, each a buffer of its own."""
        tensors = [*operator.description.inputs, operator.description.output]
        sizes = [tensor.size_in_bytes for tensor in tensors if tensor is not None]
        sizes += [operator.temporary_bytes] if operator.temporary_bytes else []
        return [Place(self.d3d12.make_buffer(size), 0, size) for size in sizes]

    def record(self, operator: DmlOperator, places: list[Place]) -> tuple[FakeObject, Any]:
        """(the list, everything that must outlive it)"""
        commands = self.d3d12.command_list()
        loan = self.d3d12.descriptors.lend(operator.descriptors)
        held = self.d3d12.com(commands)
        loan.set_on(held)
        operator.record(held, places, loan.take(operator.descriptors))
        return commands, (loan, places, held)


def every_operator(dtype: DType) -> dict[str, Description]:
    """An operator of each kind, at the shape of the case that this project began with."""
    return sample_operators(dtype, 5, 64, 32)
