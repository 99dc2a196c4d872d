"""Every kind of bad vocabulary and of text that cannot be tokenized."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.robustness_table import Kind
from tests.text.small_vocabularies import sentencepiece_metadata, tiny_metadata

from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.huggingface_tokenizer import tokenizer_from_huggingface

AREA = "Vocabularies"
_KEY = "tokenizer.ggml."

Change = Callable[[dict[str, Any]], None]


def _set(name: str, value: Any) -> Change:
    return lambda metadata: metadata.update({_KEY + name: value})


def _token(i: int, text: str, kind: int | None = None) -> Change:
    def change(metadata: dict[str, Any]) -> None:
        metadata[_KEY + "tokens"][i] = text
        if kind is not None:
            metadata[_KEY + "token_type"][i] = kind

    return change


def _score(i: int, value: float) -> Change:
    return lambda metadata: metadata[_KEY + "scores"].__setitem__(i, value)


def _bpe(kind: str, change: Change) -> Kind:
    return Kind(AREA, kind, lambda _: _changed(tiny_metadata(), change))


def _spm(kind: str, change: Change) -> Kind:
    return Kind(AREA, kind, lambda _: _changed(sentencepiece_metadata(), change))


def _changed(metadata: dict[str, Any], change: Change) -> None:
    change(metadata)
    tokenizer_from_gguf(metadata)


def _no_bytes(metadata: dict[str, Any]) -> None:
    metadata[_KEY + "tokens"][:256] = [f"word{i}" for i in range(256)]
    metadata[_KEY + "merges"] = ["word0 word1"]
    metadata[_KEY + "tokens"][256] = "word0word1"


def _neither_bytes_nor_unknown(_folder: Path) -> None:
    metadata = sentencepiece_metadata(byte_tokens=False)
    del metadata[_KEY + "unknown_token_id"]
    metadata[_KEY + "tokens"][0] = "<pad>"
    metadata[_KEY + "token_type"][0] = 3
    tokenizer_from_gguf(metadata)


def _json(content: dict[str, Any] | str, **configs: Any) -> Callable[[Path], None]:
    def trigger(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        tokenizer_from_huggingface(path, **{"config": {}, **configs})

    return trigger


def _tokenizer_json(vocabulary: dict[str, int], decoder: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    empty = dict.fromkeys(["normalizer", "pre_tokenizer", "post_processor"])
    return {"version": "1.0", "added_tokens": [], "model": model, "decoder": decoder, **empty}


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}

KINDS = (
    _bpe("a kind of vocabulary that is not known", _set("model", "wordpiece")),
    _bpe("no kind of vocabulary", _set("model", None)),
    _bpe("an unknown pre-tokenizer", _set("pre", "from-the-future")),
    _bpe("a pre-tokenizer that is a number", _set("pre", 5)),
    _bpe("no tokens", _set("tokens", None)),
    _bpe("tokens that are numbers", _set("tokens", np.arange(270))),
    _bpe("a repeated token", _token(200, "h")),
    _bpe("an empty token", _token(200, "")),
    _bpe("a byte token <0x-1>", _token(269, "<0x-1>", 6)),
    _bpe("a byte token <0xZZ>", _token(269, "<0xZZ>", 6)),
    _bpe("a byte token <0x123>", _token(269, "<0x123>", 6)),
    _bpe("no byte tokens", _no_bytes),
    _bpe("no merges", _set("merges", None)),
    _bpe("a merge that makes no token", _set("merges", ["h e", "h zzz"])),
    _bpe("a merge without a space", _set("merges", ["he"])),
    _bpe("types of the wrong length", _set("token_type", np.ones(3, np.int32))),
    _bpe("types that are text", _set("token_type", ["normal"] * 270)),
    _bpe("types that are fractions", _set("token_type", np.ones(270, np.float32))),
    _bpe("an unknown type", _set("token_type", np.full(270, 9, np.int32))),
    _bpe("a special id outside the vocabulary", _set("eos_token_id", 270)),
    _bpe("a negative special id", _set("bos_token_id", -1)),
    _bpe("a huge special id", _set("eot_token_id", (1 << 64) - 1)),
    _bpe("a special id that is text", _set("eos_token_id", "</s>")),
    _bpe("a special id that is a fraction", _set("bos_token_id", 1.5)),
    _bpe("add_bos_token that is a number", _set("add_bos_token", 2)),
    _spm("no scores", _set("scores", None)),
    _spm("scores of the wrong length", _set("scores", np.zeros(3, np.float32))),
    _spm("scores that are integers", _set("scores", np.zeros(274, np.int32))),
    _spm("scores that are text", _set("scores", ["0"] * 274)),
    _spm("a score that is not a number", _score(260, float("nan"))),
    _spm("an infinite score", _score(261, float("inf"))),
    _spm("a repeated piece", _token(265, "h")),
    _spm("an empty piece", _token(265, "")),
    _spm("a malformed byte piece", _token(3, "<0x0>")),
    _spm("a missing byte piece", _token(13, "spare", 1)),
    _spm("add_space_prefix that is text", _set("add_space_prefix", "yes")),
    Kind(AREA, "neither byte pieces nor an unknown one", _neither_bytes_nor_unknown),
    Kind(
        AREA,
        "a model folder without tokenizer.json",
        lambda _: tokenizer_from_huggingface(None, config={}),
    ),
    Kind(AREA, "tokenizer.json is a web page", _json("<html>")),
    Kind(AREA, "tokenizer.json without a decoder", _json(_tokenizer_json({"a": 0}, None))),
    Kind(
        AREA,
        "tokenizer.json with an unsupported decoder",
        _json(_tokenizer_json({"a": 0}, {"type": "WordPiece", "prefix": "##", "cleanup": True})),
    ),
    Kind(
        AREA,
        "tokenizer.json with one id twice",
        _json(_tokenizer_json({"a": 0, "b": 0}, _BYTE_LEVEL)),
    ),
    Kind(
        AREA,
        "tokenizer.json with a huge id",
        _json(_tokenizer_json({"a": 0, "b": (1 << 32) - 1}, _BYTE_LEVEL)),
    ),
    Kind(
        AREA,
        "config.json with a huge vocabulary",
        _json(_tokenizer_json({"a": 0}, _BYTE_LEVEL), config={"vocab_size": 1 << 40}),
    ),
    Kind(
        AREA,
        "generation_config.json with an id outside the vocabulary",
        _json(_tokenizer_json({"a": 0}, _BYTE_LEVEL), generation_config={"eos_token_id": 7}),
    ),
    Kind(
        "Texts",
        "half of a surrogate pair",
        lambda _: tokenizer_from_gguf(tiny_metadata()).encode("a\ud800"),
    ),
    Kind(
        "Texts",
        "a token id outside the vocabulary",
        lambda _: tokenizer_from_gguf(tiny_metadata()).decode([270]),
    ),
)
