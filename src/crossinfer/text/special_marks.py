"""Keeps control tokens that are written in user text from being taken for the template's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from crossinfer.core.errors import TemplateError
from crossinfer.text.literals import Literals

T = TypeVar("T")


class SpecialMarks:
    """Replaces the first character of each special text by a private-use one, and restores it.

    Replacing keeps lengths, so templates see nearly what the user wrote. `used` says whether
    anything was replaced.
    """

    def __init__(self, specials: Iterable[str], texts: Iterable[str]) -> None:
        """`specials` are what must not appear; `texts` is all that the template sees or writes.

        Raises TemplateError if the texts leave no private-use character free.
        """
        self.used = False
        specials = [text for text in specials if text]
        firsts = sorted({text[0] for text in specials})
        whole = "\n".join(texts)
        taken = set(whole)
        private = itertools.chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))
        free = (
            chr(code) for code in private if chr(code) not in taken and _escape(code) not in whole
        )
        self._marks = dict(zip(firsts, free, strict=False))
        if len(self._marks) < len(firsts):
            raise TemplateError("The messages use all private-use characters; remove some of them.")
        self._originals = {ord(mark): char for char, mark in self._marks.items()}
        self._specials = Literals(specials)
        beginnings = (text[:end] for text in specials for end in range(1, len(text)))
        # Plain words are left alone: templates compare roles with them.
        self._prefixes = {text for text in beginnings if not text.isalnum()}
        self._longest = max(map(len, self._prefixes), default=0)

    def mark(self, value: T) -> T:
        """`value` with all strings in it marked, inside lists and mappings too."""
        return self._mark_any(value)  # type: ignore[no-any-return]

    def restore(self, text: str) -> str:
        """`text` as the user wrote it."""
        for code, char in self._originals.items():
            # A template that asks tojson for ASCII has spelled the mark as an escape.
            text = text.replace(_escape(code), char)
        return text.translate(self._originals)

    def _mark_any(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, Mapping):
            return {self._mark_any(key): self._mark_any(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._mark_any(item) for item in value]
        return value

    def _mark_text(self, text: str) -> str:
        starts = set(self._specials.starts(text))
        # The beginning of a special text may be completed by what the template puts behind it.
        end = len(text.rstrip())
        starts.update(
            start
            for start in range(max(0, end - self._longest), end)
            if text[start:end] in self._prefixes
        )
        if not starts:
            return text
        self.used = True
        return "".join(self._marks[char] if at in starts else char for at, char in enumerate(text))


def _escape(code: int) -> str:
    return f"\\u{code:04x}"


def texts_in(value: Any) -> Iterator[str]:
    """All strings in lists, tuples and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
