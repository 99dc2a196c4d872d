"""The rms_norm that a product may fold into itself, so that its input is the raw residual stream.

    x' = x / sqrt(mean(x²) + eps) · norm_weight

over whole rows. A device may compute it beside the product: the root is a factor of the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record
from crossinfer.formats.activations import Rounding
from crossinfer.graph.op import Op, OperandRule, Operands, float32
from crossinfer.graph.ops.rms_norm import normalised

NORM_WEIGHT = OperandRule("norm_weight", optional=True)


@record
class NormedProduct(Op):
    """An op of products of x, or of its norm if it has an `eps`."""

    eps: float | None = None

    def with_rounded(
        self, inputs: Mapping[str, Array], roundings: Mapping[str, Rounding]
    ) -> tuple[Op, dict[str, Array]]:
        """As `Op.with_rounded`; of an x with a norm, x · norm_weight is rounded.

        The root follows: kernels that round have it as a factor of the result.
        """
        if self.eps is None or "x" not in roundings:
            return super().with_rounded(inputs, roundings)
        others = {name: rounding for name, rounding in roundings.items() if name != "x"}
        x = inputs["x"].astype(np.float64)
        weighted = (x * inputs["norm_weight"].astype(np.float64)).astype(np.float32)
        root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        values = {name: value for name, value in inputs.items() if name != "norm_weight"}
        values["x"] = roundings["x"].round(weighted) / root
        return dataclasses.replace(self, eps=None).with_rounded(values, others)


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
