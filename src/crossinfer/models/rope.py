"""Rotary tables: the cosine and sine of every position and frequency, with context scaling.

Frequencies are base^(-2i/D). Scalings:

- linear: every frequency divided by `factor` (Chen et al. 2023, position interpolation);
- llama3: long wavelengths divided by `factor`, short ones kept, a linear blend between
  (Meta's Llama 3.1 reference code);
- yarn: the same idea blended by the number of rotations within the original context, and cosine and
  sine scaled by an attention factor (Peng et al. 2023).
"""

from __future__ import annotations

import math

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import FormatError
from crossinfer.models.config import ModelConfig, RopeScaling


def rope_table(config: ModelConfig, positions: int, factors: Array | None = None) -> Array:
    """float32 [positions, head_dim / 2, 2]: cosine and sine, computed in float64.

    `factors` float32 [head_dim / 2] divide the frequencies (a GGUF file's rope_freqs tensor).
    """
    i = np.arange(config.head_dim // 2)
    frequencies = config.rope_base ** (-2.0 * i / config.head_dim)
    magnitude = 1.0
    if config.rope_scaling is not None:
        frequencies, magnitude = _scale(frequencies, config, config.rope_scaling)
    if factors is not None:
        frequencies = frequencies / factors.astype(np.float64)
    # Few cosines and sines, since they take long: the rest are products of two rotations.
    near = _rotations(np.arange(_STRIDE), frequencies)
    far = _rotations(np.arange(0, positions, _STRIDE), frequencies) * magnitude
    table = (far[:, None] * near).reshape(-1, len(frequencies), 1)[:positions]
    return table.view(np.float64).astype(np.float32)


_STRIDE = 64


def _rotations(positions: Array, frequencies: Array) -> Array:
    """e^(i · position · frequency): complex128 [positions, frequencies]."""
    angles = positions[:, None] * frequencies
    rotations = np.empty(angles.shape, dtype=np.complex128)
    np.cos(angles, out=rotations.real)
    np.sin(angles, out=rotations.imag)
    return rotations


def _scale(frequencies: Array, config: ModelConfig, scaling: RopeScaling) -> tuple[Array, float]:
    match scaling.kind:
        case "linear":
            return frequencies / scaling.factor, 1.0
        case "llama3":
            return _llama3(frequencies, scaling), 1.0
        case "yarn":
            attention = scaling.attention_factor
            if attention is None:
                attention = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
            return _yarn(frequencies, config, scaling), attention
        case _:
            raise FormatError(
                f"The rotary scaling {scaling.kind!r} is not supported; "
                "linear, llama3 and yarn are."
            )


def _llama3(frequencies: Array, scaling: RopeScaling) -> Array:
    rotations = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = np.clip((rotations - low) / (high - low), 0.0, 1.0)
    return frequencies * (keep + (1 - keep) / scaling.factor)


def _yarn(frequencies: Array, config: ModelConfig, scaling: RopeScaling) -> Array:
    def index_of(rotations: float) -> float:
        """Where a frequency turns so many times within the original context."""
        wavelength = scaling.original_context / (rotations * 2 * math.pi)
        return config.head_dim * math.log(wavelength) / (2 * math.log(config.rope_base))

    first = max(math.floor(index_of(scaling.beta_fast)), 0)
    last = min(math.ceil(index_of(scaling.beta_slow)), config.head_dim - 1)
    span = max(last - first, 0.001)  # equal borders make a step
    interpolate = np.clip((np.arange(len(frequencies)) - first) / span, 0.0, 1.0)
    return frequencies * ((1 - interpolate) + interpolate / scaling.factor)
