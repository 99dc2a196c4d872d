"""Finds any of many fixed texts, the longest at a place; vocabularies have thousands of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


class Literals:
    """A set of texts to look for. A regular expression would try each of them at every place."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Empty texts are left out."""
        self._texts = frozenset(filter(None, texts))
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile(f"[{''.join(map(re.escape, lengths))}]" if lengths else r"(?!)")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they are, from left to right, none overlapping another."""
        at = 0
        while (match := self._first.search(text, at)) is not None:
            start = match.start()
            end = self._end_at(text, start)
            if end:
                yield start, end
            at = end or start + 1

    def starts(self, text: str) -> Iterator[int]:
        """Every place where one begins, overlapping or not."""
        for match in self._first.finditer(text):
            if self._end_at(text, match.start()):
                yield match.start()

    def _end_at(self, text: str, start: int) -> int:
        """Where the longest one that begins at `start` ends; 0 if none does."""
        for length in self._lengths[text[start]]:
            if text[start : start + length] in self._texts:
                return start + length
        return 0
