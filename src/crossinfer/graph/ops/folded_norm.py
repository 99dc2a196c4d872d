"""The rms_norm that a product may fold into itself, so that its input is the raw residual stream.

    x' = x / sqrt(mean(x²) + eps) · norm_weight

over whole rows. A device may compute it beside the product: the root is a factor of the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.core.dtypes import Array
from crossinfer.graph.op import OperandRule, Operands, float32
from crossinfer.graph.ops.rms_norm import normalised

NORM_WEIGHT = OperandRule("norm_weight", optional=True)


def fits_norm(inputs: Operands, eps: float | None) -> bool:
    """Whether norm_weight[K] and eps are both there, or neither, beside x[T, K]."""
    weight = inputs.get("norm_weight")
    if weight is None or eps is None:
        return weight is None and eps is None
    return weight == float32(inputs["x"].shape[-1])


def norm_folded(inputs: Mapping[str, Array], eps: float | None) -> Array:
    """x, normalised if the op says so."""
    if eps is None:
        return inputs["x"]
    return normalised(inputs["x"], inputs["norm_weight"], eps)
