"""Split GGUF models that are whole; what is refused is in `bad_files`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.formats.small_model import small_gguf, small_split

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_split import part_of
from crossinfer.formats.model_file import open_model_file
from crossinfer.models.model import load_model


@pytest.mark.parametrize("count", [1, 2, 3, 11])
def test_the_first_part_stands_for_all(count: int, tmp_path: Path) -> None:
    whole = load_model(small_gguf(tmp_path))
    parts = small_split(tmp_path, count)
    file = open_model_file(parts[0])
    assert isinstance(file, GGUFFile)
    assert file.parts == tuple(parts)
    model = load_model(parts[0])
    assert model.config == whole.config
    assert model.weights.keys() == whole.weights.keys()
    for name, weight in model.weights.items():
        np.testing.assert_array_equal(weight.to_float32(), whole.weights[name].to_float32())


def test_a_part_is_known_as_one(tmp_path: Path) -> None:
    for number, path in enumerate(small_split(tmp_path), start=1):
        assert str(part_of(GGUFFile.open(path))) == f"part {number} of 3"
    assert part_of(GGUFFile.open(small_gguf(tmp_path))) is None


def test_a_lone_part_names_the_first(tmp_path: Path) -> None:
    parts = small_split(tmp_path)
    with pytest.raises(FormatError, match=r"only part 3 of 3 .* model-00001-of-00003\.gguf"):
        load_model(parts[2])
