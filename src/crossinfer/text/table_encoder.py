"""Encodes the first texts by a table of merges, and hands long ones to the `tokenizers` library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from crossinfer.text.encoders import Encoder, refuse_unspelled
from crossinfer.text.literals import Literals
from crossinfer.text.merge_table import MergeTable
from crossinfer.text.pre_tokenizers import PreTokenizer

_FIRST_CHARACTERS = 8192
"""After so many the library is built: encoding them here took about as long as building it."""
_LONGEST_WORD = 64
"""A longer one goes to the library at once, whose time does not grow with its square."""


class TableEncoder:
    """Byte-level BPE over a `MergeTable`. Gives the ids that the library gives.

    Text is cut into added tokens and stretches between them, those are normalized and cut into
    words by the library's own rules, and the table merges the bytes of each word.
    """

    def __init__(
        self,
        table: MergeTable,
        tokens: Sequence[str],
        rules: PreTokenizer,
        *,
        added: Mapping[str, int],
        control: frozenset[int],
        build: Callable[[], Encoder],
    ) -> None:
        """`added` are the tokens that are taken whole, those in `control` only if asked for;
        `build` makes the library's encoder of the same vocabulary.
        """
        from tokenizers import normalizers

        self._table = table
        self._tokens = tokens
        self._takes_whole_words = rules.ignore_merges
        self._added = added
        self._control = control
        self._literals = Literals(added)
        self._splitter = rules.build()
        self._normalizer = normalizers.NFC() if rules.nfc else None
        self._words: dict[str, list[int]] = {}
        self._build = build
        self._lock = threading.Lock()
        self._library: Encoder | None = None
        self._left = _FIRST_CHARACTERS

    def encode(self, text: str, *, parse_special: bool, at_start: bool) -> list[int]:
        if self._library is None:
            refuse_unspelled(text, self._table.unspelled, self._normalizer)
            ids = self._encode(text, parse_special)
            if ids is not None:
                return ids
            with self._lock:
                self._library = self._library or self._build()
        return self._library.encode(text, parse_special=parse_special, at_start=at_start)

    def _encode(self, text: str, parse_special: bool) -> list[int] | None:
        """The ids; None if the library had better do it."""
        self._left -= len(text)
        if self._left < 0:
            return None
        ids: list[int] = []
        for stretch in self._stretches(text, parse_special):
            if isinstance(stretch, int):
                ids.append(stretch)
                continue
            for word in self._cut(stretch):
                if len(word) > _LONGEST_WORD:
                    return None
                ids += self._word(word)
        return ids

    def _stretches(self, text: str, parse_special: bool) -> Iterator[int | str]:
        """Added tokens, and the texts between them."""
        end = 0
        for start, stop in self._literals.spans(text):
            token = self._added[text[start:stop]]
            if token in self._control and not parse_special:
                continue  # part of the text around it
            if start > end:
                yield text[end:start]
            yield token
            end = stop
        if end < len(text):
            yield text[end:]

    def _cut(self, text: str) -> Iterator[str]:
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        return (word for word, _ in self._splitter.pre_tokenize_str(text))

    def _word(self, word: str) -> list[int]:
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = self._merged(word)
        return known

    def _merged(self, word: str) -> list[int]:
        if self._takes_whole_words:
            token = self._table.word_id(word)
            if token is not None and self._tokens[token] == word:
                return [token]
        return self._table.encode(word)
