"""The tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from crossinfer.core.errors import TokenizerError
from crossinfer.text.pre_tokenizers import PreTokenizer, pre_tokenizer_named
from crossinfer.text.tokenizer import Tokenizer

CONTROL, USER_DEFINED, UNUSED, BYTE = 3, 4, 5, 6
_END_KEYS = ("eos", "eot", "eom")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF model, from the `tokenizer.ggml.*` keys of its metadata.

    Arrays of strings are lists, arrays of numbers NumPy arrays. Raises TokenizerError when a key is
    missing or cannot be used, or for a kind of vocabulary that is not supported. Source: the GGUF
    specification in ggml's `docs/gguf.md`.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise TokenizerError(
            f"The file's tokenizer (tokenizer.ggml.model) is {model!r}; only byte-level BPE, "
            "'gpt2', is supported."
        )
    rules = pre_tokenizer_named(metadata.get("tokenizer.ggml.pre", "default"))
    tokens = _strings(metadata, "tokens")
    types = _types(metadata, len(tokens))
    special = {i: kind for i, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)}
    ends = (_token_id(metadata, name) for name in _END_KEYS)
    return Tokenizer(
        _library(tokens, _strings(metadata, "merges"), special, rules),
        tokens,
        control=(i for i, kind in special.items() if kind == CONTROL),
        literal=_literal(tokens, types),
        bos_id=_token_id(metadata, "bos"),
        eos_id=_token_id(metadata, "eos"),
        end_ids=[i for i in ends if i is not None],
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", rules.add_bos)),
    )


def _library(
    tokens: Sequence[str], merges: Sequence[str], special: Mapping[int, int], rules: PreTokenizer
) -> Any:
    import tokenizers
    from tokenizers import models, normalizers

    halves = (merge.partition(" ") for merge in merges)
    pairs = [(left, right) for left, _, right in halves]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        bpe = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rules.ignore_merges)
    except Exception as error:  # the library raises bare Exception and TypeError
        raise TokenizerError(_bad_merge(pairs, vocabulary, error)) from error
    library = tokenizers.Tokenizer(bpe)
    if rules.nfc:
        library.normalizer = normalizers.NFC()
    library.pre_tokenizer = rules.build()
    added = [
        tokenizers.AddedToken(tokens[i], special=kind == CONTROL, normalized=False)
        for i, kind in special.items()
        if tokens[i]
    ]
    library.add_tokens(added)
    return library


def _bad_merge(pairs: Sequence[tuple[str, str]], vocabulary: Mapping[str, int], why: object) -> str:
    for number, (left, right) in enumerate(pairs):
        if not {left, right, left + right} <= vocabulary.keys():
            return (
                f"Entry {number} of tokenizer.ggml.merges, {f'{left} {right}'!r}, does not join "
                "two tokens of the vocabulary to a third; the file is damaged."
            )
    return f"The file's vocabulary and merges cannot be used: {why}."


def _literal(tokens: Sequence[str], types: Sequence[int]) -> dict[int, bytes]:
    """The bytes of the tokens that are not written in byte-level characters."""
    literal: dict[int, bytes] = {}
    for i, kind in enumerate(types):
        if kind in (CONTROL, USER_DEFINED):
            literal[i] = tokens[i].encode("utf-8", "replace")
        elif kind == UNUSED:
            literal[i] = b""
        elif kind == BYTE:
            match = _BYTE_TOKEN.fullmatch(tokens[i])
            if match is None:
                raise TokenizerError(
                    f"Token {i} is marked as a byte, but is written {tokens[i]!r} instead of like "
                    "<0x0A>; the file is damaged."
                )
            literal[i] = bytes.fromhex(match[1])
    return literal


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list) or not value:
        raise TokenizerError(
            f"The file's vocabulary cannot be read: tokenizer.ggml.{name} is missing, empty, or "
            "not a list of strings."
        )
    return value


def _types(metadata: Mapping[str, Any], size: int) -> list[int]:
    value = metadata.get("tokenizer.ggml.token_type")
    if value is None:
        return [1] * size
    types = list(value) if isinstance(value, list) else value.tolist()
    if len(types) != size:
        raise TokenizerError(
            f"tokenizer.ggml.token_type has {len(types)} entries for {size} tokens; the file is "
            "damaged."
        )
    return types


def _token_id(metadata: Mapping[str, Any], name: str) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    return None if value is None else int(value)
