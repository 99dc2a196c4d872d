"""What turns a stretch of text into token ids: the interface, and the `tokenizers` library as one.

`table_encoder` has one that needs nothing built, `sentencepiece` the one for merges by score.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from crossinfer.core.errors import TokenizerError

if TYPE_CHECKING:
    import tokenizers


class Encoder(Protocol):
    """Encodes text without adding BOS or EOS. Threads may share one."""

    def encode(self, text: str, *, parse_special: bool, at_start: bool) -> list[int]:
        """The ids of `text`, in which control tokens count only if `parse_special`.

        `at_start` says that nothing comes before it, else a control token does; a vocabulary may
        want a space in front of the text in the first case or in both.
        """
        ...


def refuse_unspelled(text: str, unspelled: frozenset[int], normalizer: Any = None) -> None:
    """Raises TokenizerError if `text`, normalized, has one of the bytes without a token."""
    if not unspelled:
        return
    if normalizer is not None:
        text = normalizer.normalize_str(text)
    if lacking := unspelled.intersection(text.encode()):
        raise TokenizerError(
            f"The text cannot be tokenized: the model's vocabulary has no token for the byte "
            f"0x{min(lacking):02X}; remove the characters that need it."
        )


class LibraryEncoder:
    """A tokenizer of the `tokenizers` library, which must know the control tokens as special.

    The library drops what it cannot spell, so the bytes without a token are `unspelled`: a text
    that needs one is a TokenizerError.
    """

    def __init__(
        self, library: tokenizers.Tokenizer, unspelled: frozenset[int] = frozenset()
    ) -> None:
        from tokenizers.pre_tokenizers import Metaspace

        self._library = library
        self._unspelled = unspelled
        self._lock = threading.Lock()
        splitter = library.pre_tokenizer
        self._first_only = isinstance(splitter, Metaspace) and splitter.prepend_scheme == "first"

    def encode(self, text: str, *, parse_special: bool, at_start: bool) -> list[int]:
        refuse_unspelled(text, self._unspelled, self._library.normalizer)
        # The library keeps both switches as state, so switching and encoding go together.
        with self._lock:
            self._library.encode_special_tokens = not parse_special
            if self._first_only:
                self._put_space(at_start)
            ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids

    def _put_space(self, wanted: bool) -> None:
        from tokenizers.pre_tokenizers import Metaspace

        old = self._library.pre_tokenizer
        self._library.pre_tokenizer = Metaspace(
            replacement=old.replacement,
            prepend_scheme="first" if wanted else "never",
            split=old.split,
        )
