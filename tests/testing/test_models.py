"""Test models: reproducible, the same in both containers, and loadable elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, Q4_0, Q4_K, Q5_0, Q6_K, StorageType
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.huggingface import HuggingFaceFolder
from crossinfer.testing.gguf_model import llama3_factors
from crossinfer.testing.models import main, write_model
from crossinfer.testing.random_weights import RandomMatrix, encode_rows, uniform
from crossinfer.testing.shapes import SHAPES, shape_of
from crossinfer.testing.storage import FORMATS, storage_of
from crossinfer.testing.vocabulary import UNUSED, make_vocabulary

TINY = ("tiny-llama", "tiny-qwen2", "tiny-qwen3")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_random_stream_never_changes() -> None:
    values = uniform(3, "some.weight", 5, 1.0)
    expected = [0xBF4481AA, 0xBC12FE1A, 0xBF4466E2, 0x3FCB76EE, 0xBFD9ECBE]
    np.testing.assert_array_equal(values.view(np.uint32), np.array(expected, dtype=np.uint32))


def test_weights_have_the_standard_deviation_asked_for() -> None:
    values = uniform(0, "w", 100_000, 0.25)
    assert abs(values.std() - 0.25) < 2e-3
    assert abs(values.mean()) < 2e-3
    assert len(np.unique(values)) > 99_000


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16], ids=lambda d: d.label)
def test_both_containers_hold_the_same_model(name: str, dtype: DType, tmp_path: Path) -> None:
    file = GGUFFile.open(write_model(name, dtype, tmp_path / "model.gguf", seed=4))
    path = write_model(name, dtype, tmp_path / "folder", seed=4, container="safetensors")
    folder = HuggingFaceFolder.open(path)
    weights = list(SHAPES[name].weights())
    assert {weight.gguf for weight in weights} == file.tensors.keys()
    assert {weight.hf for weight in weights} == folder.tensors.keys()
    for weight in weights:
        ours, theirs = file.tensors[weight.gguf], folder.tensors[weight.hf]
        values = ours.to_float32()
        if name == "tiny-llama" and weight.rotary_heads:
            # What converters do to q and k, undone.
            cols = weight.shape[1]
            values = values.reshape(weight.rotary_heads, -1, 2, cols).swapaxes(1, 2)
            values = values.reshape(weight.shape)
            assert not np.array_equal(values, ours.to_float32())
        assert ours.shape == theirs.shape == weight.shape
        np.testing.assert_array_equal(values, theirs.to_float32())


def test_seeds_and_names_give_different_weights(tmp_path: Path) -> None:
    first, again, other = (
        write_model("tiny-qwen3", "q4_0", tmp_path / f"{index}.gguf", seed=seed)
        for index, seed in enumerate((0, 0, 1))
    )
    assert sha256(first) == sha256(again) != sha256(other)
    tensors = GGUFFile.open(first).tensors
    assert len({bytes(tensor.data) for tensor in tensors.values()}) == len(tensors)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("label", FORMATS)
def test_the_gguf_package_reads_every_format(name: str, label: str, tmp_path: Path) -> None:
    path = write_model(name, label, tmp_path / "model.gguf")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    ours = GGUFFile.open(path).tensors
    kinds = {tensor.tensor_type.name.lower() for tensor in tensors.values()}
    assert label.removesuffix("_m") in kinds
    for tensor_name in ("token_embd.weight", "blk.1.ffn_down.weight", "blk.1.attn_output.weight"):
        tensor = tensors[tensor_name]
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours[tensor_name].to_float32(), expected)


def test_k_quants_fall_back_where_rows_are_no_whole_blocks(tmp_path: Path) -> None:
    tensors = GGUFFile.open(write_model("tiny-qwen3", Q4_K, tmp_path / "m.gguf")).tensors
    assert tensors["blk.0.attn_output.weight"].storage is Q5_0
    assert tensors["blk.0.attn_q.weight"].storage is Q4_K
    assert tensors["blk.0.attn_q_norm.weight"].storage is DType.F32


def test_the_mix_gives_some_tensors_more_bits() -> None:
    shape = SHAPES["qwen2.5-7b"]
    types = {weight.gguf: storage_of(weight, shape, "q4_k_m") for weight in shape.weights()}
    assert types["output.weight"] is Q6_K
    assert types["token_embd.weight"] is Q4_K
    assert types["blk.0.attn_v.weight"] is Q6_K
    assert types["blk.3.attn_v.weight"] is Q4_K
    assert types["blk.3.attn_q.weight"] is Q4_K


@pytest.mark.parametrize("storage", [DType.F16, *BLOCK_FORMATS], ids=lambda s: s.label)
def test_composed_matrices_encode_the_same_values_in_every_type(storage: StorageType) -> None:
    matrix = RandomMatrix(1, "w", 300, 1280, 0.02)
    values = np.concatenate(list(matrix.encoded(DType.F32))).view(np.float32)
    assert values.shape == (300, 1280)
    assert len(np.unique(values, axis=0)) == 300
    encoded = np.concatenate(list(matrix.encoded(storage)))
    np.testing.assert_array_equal(encoded, encode_rows(values, storage))
    order = np.arange(300)[::-1]
    reordered = np.concatenate(list(matrix.encoded(storage, order)))
    np.testing.assert_array_equal(reordered, encoded[::-1])


def test_rows_that_end_inside_a_pool_block() -> None:
    matrix = RandomMatrix(1, "w", 400, 896, 0.02)
    values = np.concatenate(list(matrix.encoded(DType.F32))).view(np.float32)
    encoded = np.concatenate(list(matrix.encoded(Q4_0)))
    np.testing.assert_array_equal(encoded, encode_rows(values, Q4_0))


@pytest.mark.parametrize("scaling", ["linear", "llama3", "yarn"])
def test_rope_scaling_is_in_both_containers(scaling: str, tmp_path: Path) -> None:
    file = GGUFFile.open(
        write_model("tiny-llama", "f32", tmp_path / "m.gguf", rope_scaling=scaling)
    )
    path = write_model(
        "tiny-llama", "f32", tmp_path / "m", container="safetensors", rope_scaling=scaling
    )
    said = HuggingFaceFolder.open(path).config["rope_scaling"]
    assert said["rope_type"] == scaling
    if scaling == "llama3":
        factors = file.tensors["rope_freqs.weight"].to_float32()
        assert factors.shape == (8,)
        assert factors[0] == 1
        assert factors[-1] == said["factor"]
        assert ((factors > 1) & (factors < said["factor"])).any()
        assert "llama.rope.scaling.type" not in file.metadata
    else:
        assert file.metadata["llama.rope.scaling.type"] == scaling
        assert file.metadata["llama.rope.scaling.factor"] == said["factor"]


def test_no_factors_without_llama3_scaling() -> None:
    assert llama3_factors(SHAPES["tiny-llama"]) is None


def test_shards_hold_the_same_tensors(tmp_path: Path) -> None:
    one, three = (
        HuggingFaceFolder.open(
            write_model("tiny-llama", "bf16", tmp_path / str(n), container="safetensors", shards=n)
        )
        for n in (1, 3)
    )
    assert one.tensors.keys() == three.tensors.keys()
    for name, tensor in one.tensors.items():
        assert bytes(tensor.data) == bytes(three.tensors[name].data)


def test_tied_embeddings_have_no_output_matrix(tmp_path: Path) -> None:
    tied = GGUFFile.open(write_model("tiny-llama", "f16", tmp_path / "a", tie_embeddings=True))
    untied = GGUFFile.open(write_model("tiny-llama", "f16", tmp_path / "b"))
    assert untied.tensors.keys() - tied.tensors.keys() == {"output.weight"}


def test_tiny_files_are_small(tmp_path: Path) -> None:
    for name in TINY:
        assert write_model(name, "f32", tmp_path / name).stat().st_size < 2_000_000


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_the_tokenizer_round_trips_any_text(pre: str) -> None:
    vocabulary = make_vocabulary(pre, add_bos=pre == "llama-bpe", size=347)
    assert len(set(vocabulary.tokens)) == len(vocabulary.types) == 347
    assert vocabulary.types.count(UNUSED) > 0
    tokenizer = Tokenizer.from_str(json.dumps(vocabulary.tokenizer_json()))
    text = "Hello the world,\n\nwhat is 1234? naïve 日本 🙂<|im_end|>"
    encoding = tokenizer.encode(text)
    assert (encoding.tokens[0] == "<|endoftext|>") is vocabulary.add_bos
    assert {"Ġthe", "ĊĊ", "<|im_end|>"} <= set(encoding.tokens)
    assert tokenizer.decode(encoding.ids, skip_special_tokens=True) == text[: -len("<|im_end|>")]


def test_a_tokenizer_json_keeps_all_ids() -> None:
    vocabulary = make_vocabulary("qwen2", False, 400)
    library = Tokenizer.from_str(json.dumps(vocabulary.tokenizer_json()))
    assert library.get_vocab() == {token: i for i, token in enumerate(vocabulary.tokens)}


def test_padding_makes_a_vocabulary_of_the_real_size() -> None:
    vocabulary = make_vocabulary("qwen2", False, 151936)
    assert len(set(vocabulary.tokens)) == 151936


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no test model 'tiny-gpt'"):
        shape_of("tiny-gpt", 1)
    with pytest.raises(ValueError, match="has no hidden"):
        shape_of("tiny-llama", 1, hidden=3)
    with pytest.raises(ValueError, match="no format 'q9'"):
        write_model("tiny-llama", "q9", tmp_path / "m")
    with pytest.raises(ValueError, match="safetensors cannot hold q4_0"):
        write_model("tiny-llama", Q4_0, tmp_path / "m", container="safetensors")
    with pytest.raises(ValueError, match="more than 100"):
        write_model("tiny-llama", Q4_0, tmp_path / "m", vocab_size=100)


def test_the_command_line_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    main(["tiny-llama", "--format", "q8_0", "-o", str(path), "--rope-scaling", "yarn"])
    assert GGUFFile.open(path).metadata["llama.rope.scaling.type"] == "yarn"
    with pytest.raises(SystemExit):
        main(["tiny-llama", "--format", "q8_0", "-o", str(path), "--container", "safetensors"])
    assert "safetensors cannot hold q8_0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tiny-llama", "-o", str(tmp_path / "nowhere" / "m.gguf")])
    assert "No such file or directory" in capsys.readouterr().err
