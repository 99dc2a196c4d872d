"""Token ids to text, piece by piece, without ever splitting a character."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossinfer.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a sequence of tokens into text as they arrive.

    The pieces of `push` and the last one of `finish` join to `Tokenizer.decode` of all ids as
    `continued`. Bytes that may still become a character are held back; bytes that no longer can
    come out as U+FFFD. One detokenizer serves one sequence.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; often "". Raises TokenizerError for an unknown id."""
        if self._skip_special and self._tokenizer.is_special(token):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD for an unfinished character, else ""."""
        return self._decoder.decode(b"", final=True)
