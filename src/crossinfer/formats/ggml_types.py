"""The numbers that GGUF files use for storage types.

Source: `enum ggml_type` in ggml's `ggml.h`. Numbers that are missing here were never used or name
formats that ggml removed.
"""

from __future__ import annotations

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import (
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
)
from crossinfer.formats.table_formats import TABLE_FORMATS, FileType

_TABLES = {storage.label: storage for storage in TABLE_FORMATS}

STORAGE_BY_ID: dict[int, FileType] = {
    0: DType.F32,
    1: DType.F16,
    2: Q4_0,
    3: Q4_1,
    6: Q5_0,
    7: Q5_1,
    8: Q8_0,
    10: Q2_K,
    11: Q3_K,
    12: Q4_K,
    13: Q5_K,
    14: Q6_K,
    16: _TABLES["iq2_xxs"],
    17: _TABLES["iq2_xs"],
    18: _TABLES["iq3_xxs"],
    19: _TABLES["iq1_s"],
    20: _TABLES["iq4_nl"],
    21: _TABLES["iq3_s"],
    22: _TABLES["iq2_s"],
    23: _TABLES["iq4_xs"],
    26: DType.I32,
    29: _TABLES["iq1_m"],
    30: DType.BF16,
    34: _TABLES["tq1_0"],
    35: _TABLES["tq2_0"],
    39: _TABLES["mxfp4"],
    40: _TABLES["nvfp4"],
}
"""The types that crossinfer reads."""

ID_BY_STORAGE = {storage: number for number, storage in STORAGE_BY_ID.items()}

_OTHER_NAMES = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    24: "I8",
    25: "I16",
    27: "I64",
    28: "F64",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
    41: "Q1_0",
}


def type_name(number: int) -> str:
    """ggml's name of type `number`, for messages; `type 99` if it has none."""
    if number in STORAGE_BY_ID:
        return STORAGE_BY_ID[number].label.upper()
    return _OTHER_NAMES.get(number, f"type {number}")
