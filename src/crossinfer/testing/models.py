"""Makes models of real shapes with random weights, for tests and benchmarks.

    python -m crossinfer.testing.models tiny-qwen2 --format q4_0 -o tiny.gguf

The file of one (name, format, seed) is the same on every machine, and both containers of a model
hold the same weights. The tiny models have sizes of their own for K-quants, whose blocks are wider
than the plain tiny rows. `testing.shapes.SHAPES` lists the names.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import StorageType
from crossinfer.testing.folder_model import write_folder_model
from crossinfer.testing.gguf_model import write_gguf_model
from crossinfer.testing.shapes import ROPE_SCALINGS, SHAPES, shape_of
from crossinfer.testing.storage import FORMATS, base_storage
from crossinfer.testing.vocabulary import make_vocabulary

Container = Literal["gguf", "safetensors"]


def write_model(
    name: str,
    storage: StorageType | str,
    path: Path | str,
    seed: int = 0,
    container: Container = "gguf",
    shards: int = 1,
    **overrides: Any,
) -> Path:
    """Write a model and return its path: a GGUF file, or a folder for `safetensors`.

    `name` is a key of SHAPES, `storage` a type or a name of FORMATS. `overrides` replace fields of
    its ModelShape, such as `tie_embeddings=False` or `rope_scaling="yarn"`. `shards` is how many
    files a folder's weights are split into. Raises ValueError for what cannot be made.
    """
    path = Path(path)
    label = storage if isinstance(storage, str) else storage.label
    base = base_storage(label)
    shape = shape_of(name, base.block_elements, **overrides)
    is_llama = shape.architecture == "llama"
    vocabulary = make_vocabulary("llama-bpe" if is_llama else "qwen2", is_llama, shape.vocab_size)
    if container == "gguf":
        write_gguf_model(path, name, shape, vocabulary, label, seed)
    elif isinstance(base, DType):
        write_folder_model(path, shape, vocabulary, base, seed, shards)
    else:
        raise ValueError(f"safetensors cannot hold {label}; it holds f32, f16 and bf16")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(
        prog="python -m crossinfer.testing.models", description="Make a model with random weights."
    )
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--format", choices=FORMATS, default="f32")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file or folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--container", choices=("gguf", "safetensors"), default="gguf")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rope-scaling", choices=("none", *ROPE_SCALINGS), default="none")
    options = parser.parse_args(arguments)
    try:
        write_model(
            options.name,
            options.format,
            options.output,
            options.seed,
            options.container,
            options.shards,
            rope_scaling=options.rope_scaling,
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
