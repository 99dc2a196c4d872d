"""Our side of DirectML against the real library, as far as it comes over libvkd3d.

libvkd3d lacks what most of its shaders need, so few operators compile. But it judges every
description, and the life of an operator that compiles is whole.
"""

from __future__ import annotations

import pytest
from tests.backends.d3d12.directml.real_directml import FetchError, RealDirectML

from crossinfer.backends.d3d12.directml.descriptions import Cast
from crossinfer.backends.d3d12.directml.samples import sample_operators
from crossinfer.backends.d3d12.directml.tensors import Tensor
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import KernelUnsupported
from crossinfer.graph.tolerance import Tolerance

LIMITS = {DType.F32: Tolerance.F32.value, DType.F16: Tolerance.HALF.value}


@pytest.mark.slow
def test_the_real_library(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        real = RealDirectML()
    except FetchError as error:
        pytest.skip(str(error))
    assert all(real.session.supports(dtype) for dtype in LIMITS)
    outcomes = list(real.outcomes())
    assert len(outcomes) == 24
    for outcome in outcomes:
        if outcome.error is None:
            assert "CompileOperator" in outcome.why, "DirectML takes every description"
            assert not isinstance(outcome.description, Cast), outcome
        else:
            assert outcome.error <= LIMITS[outcome.description.output.dtype], outcome
    assert real.faces.problems == []

    monkeypatch.setattr(Tensor, "size_in_bytes", property(lambda _: 4))
    wrong = sample_operators(DType.F32, 3, 8, 8)["gemm"]
    with pytest.raises(KernelUnsupported, match=r"CreateOperator returned E_INVALIDARG"):
        real.session.kernel(wrong)
