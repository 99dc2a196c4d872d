"""The rms_norm that a product may fold into itself, so that its input is the raw residual stream.

    x' = x / sqrt(mean(x²) + eps) · norm_weight

over whole rows. A device may compute it beside the product: the root is a factor of the result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.activations import Rounding
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


def norm_taken_out(inputs: Mapping[str, Array], eps: float, rounding: Rounding) -> dict[str, Array]:
    """Inputs of the product without the norm that have its result, x · norm_weight rounded.

    The root follows: kernels that round have it as a factor of the result.
    """
    x = inputs["x"].astype(np.float64)
    weighted = (x * inputs["norm_weight"].astype(np.float64)).astype(np.float32)
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    others = {name: values for name, values in inputs.items() if name != "norm_weight"}
    return {**others, "x": rounding.round(weighted) / root}
