"""How the tokens of a tokenizer.json spell bytes, which its decoder tells.

Source: the decoders of huggingface/tokenizers (`ByteLevel`, `Metaspace`, and the sequence of
`Replace`, `ByteFallback`, `Fuse`, `Strip` that stands for SentencePiece).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossinfer.core.errors import TokenizerError
from crossinfer.core.records import record
from crossinfer.text import byte_level

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@record
class Spelling:
    """`spell` has a token's bytes, `spell_added` those of an added one that is no control token.

    `space_prefix` says that a text begins with a space that is not its own.
    """

    spell: Callable[[str], bytes]
    spell_added: Callable[[str], bytes]
    space_prefix: bool


def spelling_of(library: tokenizers.Tokenizer, path: Path) -> Spelling:
    """What the decoder does, token by token. Raises TokenizerError for one that is not known."""
    if library.decoder is None:
        raise TokenizerError(f"{path} has no decoder, so its tokens cannot be turned into text.")
    decoder = json.loads(library.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    spell: Callable[[str], bytes] = str.encode
    space_prefix = False
    for step in steps:
        kind = step["type"]
        if kind == "ByteLevel":
            spell = byte_level.to_bytes
        elif kind == "Metaspace":
            spell = _replacing(step["replacement"], " ")
            space_prefix = step.get("prepend_scheme", "always") != "never"
        elif kind == "Replace" and isinstance(step["pattern"].get("String"), str):
            spell = _replacing(step["pattern"]["String"], step["content"])
        elif kind == "ByteFallback":
            spell = _bytes_or(spell)
        elif kind == "Strip" and _is_one_space(step):
            space_prefix = step["start"] == 1
        elif kind != "Fuse":
            raise TokenizerError(
                f"{path} has the decoder {kind}, which is not supported: supported are byte-level "
                "vocabularies and those of SentencePiece."
            )
    # Added tokens are plain text in byte-level vocabularies; SentencePiece's have its spaces.
    byte_level_spelling = spell is byte_level.to_bytes
    return Spelling(spell, str.encode if byte_level_spelling else spell, space_prefix)


def _is_one_space(step: dict[str, Any]) -> bool:
    return step["content"] == " " and step["start"] in (0, 1) and step["stop"] == 0


def _replacing(old: str, new: str) -> Callable[[str], bytes]:
    return lambda token: token.replace(old, new).encode()


def _bytes_or(spell: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def spell_token(token: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(token)
        return spell(token) if match is None else bytes([int(match[1], 16)])

    return spell_token
