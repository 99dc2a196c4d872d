"""The vocabulary in a GGUF file's metadata, read without trusting it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import TokenizerError, shown
from crossinfer.formats.string_array import StringArray

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""ggml's types of tokens."""

_PREFIX = "tokenizer.ggml."
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

Metadata = Mapping[str, Any]


def read_strings(metadata: Metadata, name: str) -> Sequence[str]:
    """An array of strings, which must not be empty. Raises TokenizerError."""
    value = metadata.get(_PREFIX + name)
    if not isinstance(value, list | StringArray) or not value:
        raise TokenizerError(
            f"The file's vocabulary cannot be read: {_PREFIX}{name} is missing, empty, or not a "
            "list of strings."
        )
    return value


def read_types(metadata: Metadata, size: int) -> Array:
    """ggml's type of each token; all normal where the file has none. Raises TokenizerError."""
    values = metadata.get(_PREFIX + "token_type")
    if values is None:
        return np.full(size, NORMAL)
    types = _numbers(values, "token_type", size, "iu", "integers")
    for i in np.flatnonzero((types < NORMAL) | (types > BYTE)):
        raise TokenizerError(
            f"Entry {i} of {_PREFIX}token_type is {types[i]}; types of tokens are 1 to 6, so the "
            "file is damaged."
        )
    return types


def check_tokens(tokens: Sequence[str], types: Array) -> None:
    """Raises TokenizerError if two tokens are spelled alike, or one that is used has no text."""
    first: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if first.setdefault(token, i) != i:
            raise TokenizerError(
                f"Tokens {first[token]} and {i} of the vocabulary are both {shown(token)}; the "
                "file is damaged or was converted wrongly."
            )
    empty = first.get("")
    if empty is not None and types[empty] != UNUSED:
        raise TokenizerError(
            f"Token {empty} of the vocabulary is empty; the file is damaged or was converted "
            "wrongly."
        )


def read_scores(metadata: Metadata, size: int) -> list[float]:
    """The score of each token. Raises TokenizerError."""
    values = metadata.get(_PREFIX + "scores")
    if values is None:
        raise TokenizerError(
            f"The file's vocabulary cannot be read: {_PREFIX}scores is missing, and a vocabulary "
            "of the type 'llama' merges by scores."
        )
    scores: list[float] = _numbers(values, "scores", size, "f", "floating-point numbers").tolist()
    for i in np.flatnonzero(~np.isfinite(scores)):
        raise TokenizerError(
            f"Entry {i} of {_PREFIX}scores is {scores[i]}, which is no score; the file is damaged."
        )
    return scores


def read_byte(tokens: Sequence[str], i: int) -> int:
    """The byte that token `i`, which is marked as one, stands for. Raises TokenizerError."""
    match = _BYTE_TOKEN.fullmatch(tokens[i])
    if match is None:
        raise TokenizerError(
            f"Token {i} is marked as a byte, but is written {shown(tokens[i])} instead of like "
            "<0x0A>; the file is damaged."
        )
    return int(match[1], 16)


def read_special_id(metadata: Metadata, name: str, size: int) -> int | None:
    """The id of the special token `name`, if the file names one. Raises TokenizerError."""
    value = metadata.get(f"{_PREFIX}{name}_token_id")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TokenizerError(
            f"{_PREFIX}{name}_token_id is {shown(value)}; it must be a token's id."
        )
    if not 0 <= value < size:
        raise TokenizerError(
            f"{_PREFIX}{name}_token_id names {value} as a special token, but the vocabulary has "
            f"{size} tokens; the file is damaged or was converted wrongly."
        )
    return int(value)


def read_flag(metadata: Metadata, name: str, default: bool) -> bool:
    """A boolean; `default` where the file says nothing. Raises TokenizerError."""
    value = metadata.get(_PREFIX + name, default)
    if not isinstance(value, bool | np.bool_):
        raise TokenizerError(f"{_PREFIX}{name} is {shown(value)}; it must be true or false.")
    return bool(value)


def _numbers(values: Any, name: str, size: int, kinds: str, what: str) -> Array:
    array = np.asarray(values)
    if array.dtype.kind not in kinds:
        raise TokenizerError(
            f"{_PREFIX}{name} is not a list of {what}; the file is damaged or was converted "
            "wrongly."
        )
    if array.shape != (size,):
        raise TokenizerError(
            f"{_PREFIX}{name} has {array.size} entries for {size} tokens; the file is damaged."
        )
    return array
