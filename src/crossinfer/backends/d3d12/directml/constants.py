"""The numbers of DirectML.h that this backend uses. The tests compare them with the header's."""

from __future__ import annotations

import enum

BUFFER_ALIGNMENT = 256
"""DML_TEMPORARY_BUFFER_ALIGNMENT, DML_PERSISTENT_BUFFER_ALIGNMENT."""
SIZE_ALIGNMENT = 4
"""Bound buffers hold whole 32-bit words."""
FEATURE_LEVEL_2_0 = 0x2000
"""DML_FEATURE_LEVEL_2_0: the lowest whose operators are used here."""
FEATURE_TENSOR_DATA_TYPE_SUPPORT = 0


class DataType(enum.IntEnum):
    """DML_TENSOR_DATA_TYPE"""

    FLOAT32 = 1
    FLOAT16 = 2


class OperatorType(enum.IntEnum):
    """DML_OPERATOR_TYPE"""

    ELEMENT_WISE_ADD = 4
    ELEMENT_WISE_MULTIPLY = 24
    ACTIVATION_RELU = 44
    ACTIVATION_SIGMOID = 47
    ACTIVATION_SOFTMAX = 48
    ACTIVATION_TANH = 51
    GEMM = 54
    CAST = 61


class BindingType(enum.IntEnum):
    """DML_BINDING_TYPE"""

    NONE = 0
    BUFFER = 1
    BUFFER_ARRAY = 2


class ExecutionFlags(enum.IntFlag):
    """DML_EXECUTION_FLAGS. Half-precision sums are never asked for."""

    NONE = 0
    DISABLE_META_COMMANDS = 2


class CreateDeviceFlags(enum.IntFlag):
    """DML_CREATE_DEVICE_FLAGS"""

    NONE = 0
    DEBUG = 1


TENSOR_TYPE_BUFFER = 1
TENSOR_FLAG_NONE = 0
MATRIX_TRANSFORM_NONE = 0
MATRIX_TRANSFORM_TRANSPOSE = 1
