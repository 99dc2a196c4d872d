"""Tokenizers from tokenizer.json and the configs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossinfer.core.errors import TokenizerError
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.huggingface_tokenizer import tokenizer_from_huggingface


@pytest.fixture
def tokenizer_json(metadata: dict[str, Any], tmp_path: Path) -> Path:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    names = metadata["tokenizer.ggml.tokens"][:264]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    library = tokenizers.Tokenizer(
        models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges)
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    special = metadata["tokenizer.ggml.tokens"][264:268]
    library.add_special_tokens(
        [tokenizers.AddedToken(text, special=True, normalized=False) for text in special]
    )
    library.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    return path


def test_equals_the_same_vocabulary_in_gguf(tokenizer_json: Path, metadata: dict[str, Any]) -> None:
    tokenizer = tokenizer_from_huggingface(tokenizer_json, config={})
    other = tokenizer_from_gguf(metadata)
    for text in ("hello hello", "<|im_end|>é\x00 <tool>", "😀 <s>"):
        for parse in (False, True):
            ids = other.encode(text, parse_special=parse)
            assert tokenizer.encode(text, parse_special=parse) == ids
            for skip in (False, True):
                assert tokenizer.decode(ids, skip_special=skip) == other.decode(
                    ids, skip_special=skip
                )


def test_special_ids_come_from_the_configs(tokenizer_json: Path) -> None:
    tokenizer = tokenizer_from_huggingface(
        tokenizer_json,
        config={"eos_token_id": 70, "vocab_size": 300},
        generation_config={"eos_token_id": [266, 71]},
        tokenizer_config={
            "bos_token": {"content": "<s>"},
            "eos_token": "<|im_end|>",
            "add_bos_token": True,
        },
    )
    assert (tokenizer.bos_id, tokenizer.eos_id) == (267, 266)
    assert tokenizer.end_ids == {70, 71, 264, 266}
    assert tokenizer.encode("")[:2] == [267]
    assert tokenizer.vocab_size == 300
    assert tokenizer.decode([299]) == ""


def test_post_processor_tells_whether_bos_is_added(tokenizer_json: Path) -> None:
    import tokenizers
    from tokenizers.processors import TemplateProcessing

    config = {"bos_token": "<s>"}
    tokenizer = tokenizer_from_huggingface(tokenizer_json, config={}, tokenizer_config=config)
    assert tokenizer.encode("h") == [104]
    library = tokenizers.Tokenizer.from_file(str(tokenizer_json))
    library.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 267)])
    library.save(str(tokenizer_json))
    tokenizer = tokenizer_from_huggingface(tokenizer_json, config={}, tokenizer_config=config)
    assert tokenizer.encode("h") == [267, 104]
    assert tokenizer.encode("h", add_bos=False) == [104]


def test_bad_files(tokenizer_json: Path) -> None:
    import tokenizers
    from tokenizers import decoders

    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json"):
        tokenizer_from_huggingface(None, config={})
    library = tokenizers.Tokenizer.from_file(str(tokenizer_json))
    library.decoder = decoders.WordPiece()
    library.save(str(tokenizer_json))
    with pytest.raises(TokenizerError, match="has the decoder WordPiece"):
        tokenizer_from_huggingface(tokenizer_json, config={})
    tokenizer_json.write_text("<html>")
    with pytest.raises(TokenizerError, match="is not a tokenizer that can be read"):
        tokenizer_from_huggingface(tokenizer_json, config={})
