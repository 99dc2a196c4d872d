"""Random tensors in their storage."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat, dequantize, unpack_codes
from crossinfer.verify.cases_linear import STORAGES
from crossinfer.verify.data import random_stored

SHAPE = (40, 1024)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.label)
def test_rows_have_a_norm_of_about_one(storage: DType | BlockFormat) -> None:
    stored = random_stored(np.random.default_rng(1), storage, SHAPE)
    values = dequantize(stored.tobytes(), storage, SHAPE)
    assert np.all(np.isfinite(values))
    norms = np.linalg.norm(values, axis=1)
    assert 0.5 < np.median(norms) < 4


@pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda storage: storage.label)
def test_every_code_and_sign_occurs(storage: BlockFormat) -> None:
    blocks = random_stored(np.random.default_rng(1), storage, SHAPE)
    assert blocks.shape[1] == storage.block_bytes
    assert set(unpack_codes(blocks, storage).reshape(-1).tolist()) == set(range(1 << storage.bits))
    offset = storage.scale_offset
    scales = blocks[:, offset : offset + 2].copy().view(np.float16)
    assert {-1, 0, 1} == set(np.sign(scales).reshape(-1).tolist())
    assert len(np.unique(scales)) > len(blocks) // 4
