"""The tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import TokenizerError, shown
from crossinfer.formats.string_array import StringArray
from crossinfer.text import byte_level, gguf_vocabulary
from crossinfer.text.encoders import Encoder, LibraryEncoder
from crossinfer.text.gguf_vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    read_flag,
    read_special_id,
    read_strings,
)
from crossinfer.text.merge_table import KeptTable, pack_table
from crossinfer.text.pre_tokenizers import PreTokenizer, pre_tokenizer_named
from crossinfer.text.table_encoder import TableEncoder
from crossinfer.text.tokenizer import Tokenizer

_END_KEYS = ("eos", "eot", "eom")
_MANY = 10_000
"""Fewer merges and tokens are built by the library in less time than their table is worth."""


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF model, from the `tokenizer.ggml.*` keys of its metadata.

    Arrays of strings are lists, arrays of numbers NumPy arrays. Raises TokenizerError when a key is
    missing or cannot be used, or for a kind of vocabulary that is not supported. Source: the GGUF
    specification in ggml's `docs/gguf.md`.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level(metadata)
    if model == "llama":
        return _sentencepiece(metadata)
    raise TokenizerError(
        f"The file's tokenizer (tokenizer.ggml.model) is {shown(model)}; supported are byte-level "
        "BPE, 'gpt2', and SentencePiece, 'llama'."
    )


def _byte_level(metadata: Mapping[str, Any]) -> Tokenizer:
    rules = pre_tokenizer_named(metadata.get("tokenizer.ggml.pre", "default"))
    tokens = read_strings(metadata, "tokens")
    types = gguf_vocabulary.read_types(metadata, len(tokens))
    encoder = _byte_level_encoder(tokens, read_strings(metadata, "merges"), types, rules)
    literal = {i: tokens[i].encode() for i in _of_type(types, UNKNOWN, CONTROL, USER_DEFINED)}
    literal |= dict.fromkeys(_of_type(types, UNUSED), b"")
    literal |= {i: bytes([gguf_vocabulary.read_byte(tokens, i)]) for i in _of_type(types, BYTE)}
    return Tokenizer(
        encoder,
        tokens,
        spell=byte_level.to_bytes,
        literal=literal,
        control=_of_type(types, UNKNOWN, CONTROL),
        added=_of_type(types, CONTROL, USER_DEFINED),
        add_bos=read_flag(metadata, "add_bos_token", rules.add_bos),
        **_special_ids(metadata, len(tokens)),
    )


def _byte_level_encoder(
    tokens: Sequence[str], merges: Sequence[str], types: Array, rules: PreTokenizer
) -> Encoder:
    """The library's encoder; for a large vocabulary that was checked before, its kept table.

    Raises TokenizerError.
    """

    def build() -> LibraryEncoder:
        return LibraryEncoder(*_library(list(tokens), list(merges), types, rules))

    kept = None
    if isinstance(tokens, StringArray) and isinstance(merges, StringArray):
        if max(len(merges), len(tokens)) >= _MANY:
            whole_words = b"whole words" if rules.ignore_merges else b""
            kept = KeptTable((tokens.raw, merges.raw, types.tobytes(), whole_words))
        table = None if kept is None else kept.read()
        if table is not None:
            added = {tokens[i]: i for i in _of_type(types, CONTROL, USER_DEFINED)}
            control = frozenset(_of_type(types, CONTROL))
            return TableEncoder(table, tokens, rules, added=added, control=control, build=build)
    gguf_vocabulary.check_tokens(tokens, types)
    encoder = build()
    if kept is not None:
        kept.keep(pack_table(list(tokens), list(merges), whole_words=rules.ignore_merges))
    return encoder


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    # Most vocabularies are of the other kind, and do without.
    from crossinfer.text.sentencepiece import SPACE, Pieces, SentencePieceEncoder

    tokens = read_strings(metadata, "tokens")
    types = gguf_vocabulary.read_types(metadata, len(tokens))
    gguf_vocabulary.check_tokens(tokens, types)
    scores = gguf_vocabulary.read_scores(metadata, len(tokens))
    space_prefix = read_flag(metadata, "add_space_prefix", True)
    special = _special_ids(metadata, len(tokens))
    # Files that name no special tokens mean the ones that SentencePiece calls so.
    by_text = {tokens[i]: i for i in _of_type(types, UNKNOWN, CONTROL)}
    for name, text in (("bos_id", "<s>"), ("eos_id", "</s>")):
        if special[name] is None:
            special[name] = by_text.get(text)
    unknown = read_special_id(metadata, "unknown", len(tokens))
    unknown = by_text.get("<unk>") if unknown is None else unknown
    byte_of = {i: gguf_vocabulary.read_byte(tokens, i) for i in _of_type(types, BYTE)}
    pieces = Pieces(
        ids={tokens[i]: i for i in _of_type(types, NORMAL)},
        scores=scores,
        byte_ids=_byte_ids(byte_of, unknown),
        unknown=unknown,
    )
    # User-defined tokens are matched in the text as it is, so their spaces are spaces.
    always = {tokens[i].replace(SPACE, " "): i for i in _of_type(types, USER_DEFINED)}
    literal = {i: tokens[i].encode() for i in _of_type(types, UNKNOWN, CONTROL)}
    literal |= {i: text.encode() for text, i in always.items()}
    literal |= dict.fromkeys(_of_type(types, UNUSED), b"")
    literal |= {i: bytes([byte]) for i, byte in byte_of.items()}
    control = {tokens[i]: i for i in _of_type(types, CONTROL)}
    return Tokenizer(
        SentencePieceEncoder(pieces, control=control, always=always, space_prefix=space_prefix),
        tokens,
        spell=lambda token: token.replace(SPACE, " ").encode(),
        literal=literal,
        control=by_text.values(),
        added=_of_type(types, CONTROL, USER_DEFINED),
        space_prefix=space_prefix,
        add_bos=read_flag(metadata, "add_bos_token", True),
        **special,
    )


def _byte_ids(byte_of: Mapping[int, int], unknown: int | None) -> list[int]:
    """The token of each byte, or none at all where an unknown token stands for the rest."""
    ids = {byte: i for i, byte in byte_of.items()}
    missing = [byte for byte in range(256) if byte not in ids]
    if not missing:
        return [ids[byte] for byte in range(256)]
    if ids:
        raise TokenizerError(
            f"The vocabulary has byte tokens, but none for <0x{missing[0]:02X}>; the file is "
            "damaged or was converted wrongly."
        )
    if unknown is None:
        raise TokenizerError(
            "The vocabulary has neither byte tokens nor an unknown token, so most texts cannot be "
            "spelled in it; the file is damaged or was converted wrongly."
        )
    return []


def _special_ids(metadata: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The arguments of Tokenizer that name special tokens."""
    ends = (read_special_id(metadata, name, size) for name in _END_KEYS)
    return {
        "bos_id": read_special_id(metadata, "bos", size),
        "eos_id": read_special_id(metadata, "eos", size),
        "end_ids": [i for i in ends if i is not None],
    }


def _of_type(types: Array, *wanted: int) -> list[int]:
    found = types == wanted[0]
    for other in wanted[1:]:
        found |= types == other
    ids: list[int] = np.flatnonzero(found).tolist()
    return ids


def _library(
    tokens: Sequence[str], merges: Sequence[str], types: Array, rules: PreTokenizer
) -> tuple[Any, frozenset[int]]:
    """The library's tokenizer, and the bytes that it has no token for."""
    import tokenizers
    from tokenizers import models, normalizers

    halves = (merge.partition(" ") for merge in merges)
    pairs = [(left, right) for left, _, right in halves]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    unspelled = frozenset(
        byte for byte, char in byte_level.BYTE_TO_CHAR.items() if char not in vocabulary
    )
    if len(unspelled) == 256:
        raise TokenizerError(
            "The vocabulary has no byte tokens, so no text can be spelled in it; the file is "
            "damaged or was converted wrongly."
        )
    try:
        bpe = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rules.ignore_merges)
    except Exception as error:  # the library raises bare Exception and TypeError
        raise TokenizerError(_bad_merge(pairs, vocabulary, error)) from error
    library = tokenizers.Tokenizer(bpe)
    if rules.nfc:
        library.normalizer = normalizers.NFC()
    library.pre_tokenizer = rules.build()
    added = [
        tokenizers.AddedToken(tokens[i], special=bool(types[i] == CONTROL), normalized=False)
        for i in _of_type(types, CONTROL, USER_DEFINED)
    ]
    library.add_tokens(added)
    return library, unspelled


def _bad_merge(pairs: Sequence[tuple[str, str]], vocabulary: Mapping[str, int], why: object) -> str:
    for number, (left, right) in enumerate(pairs):
        if not {left, right, left + right} <= vocabulary.keys():
            return (
                f"Entry {number} of tokenizer.ggml.merges, {shown(f'{left} {right}')}, does not "
                "join two tokens of the vocabulary to a third; the file is damaged."
            )
    return f"The file's vocabulary and merges cannot be used: {why}."
