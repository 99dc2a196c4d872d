"""SentencePiece's byte-pair encoding: the pair whose token scores best is merged first.

The `tokenizers` library merges by ranks of pairs, which decides ties (runs of one character)
otherwise, so this is our own. A heap holds the pairs; n characters take O(n log n). Sources: the
BPE model of google/sentencepiece, and `llm_tokenizer_spm` of llama.cpp, which agree.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from crossinfer.core.errors import TokenizerError
from crossinfer.core.records import record
from crossinfer.text.literals import Literals

SPACE = "\u2581"
"""Stands for a space in the vocabulary."""

_WORD_CACHE = 1 << 14


@record
class Pieces:
    """A vocabulary: what merges can make, with scores by id, and what spells the rest.

    `byte_ids` has the token of every byte, or is empty; then `unknown` stands for what the pieces
    cannot spell.
    """

    ids: Mapping[str, int]
    scores: Sequence[float]
    byte_ids: Sequence[int]
    unknown: int | None


class SentencePieceEncoder:
    """Encodes by merges. `control` and `always` are the texts of tokens that are taken whole."""

    def __init__(
        self,
        pieces: Pieces,
        *,
        control: Mapping[str, int],
        always: Mapping[str, int],
        space_prefix: bool,
    ) -> None:
        """`always` counts in any text, `control` on demand.

        `space_prefix` puts a space before each stretch of text that begins or follows one of them.
        """
        self._pieces = pieces
        self._whole = {**control, **always}
        self._always = Literals(always)
        self._all = Literals(self._whole)
        self._space_prefix = space_prefix
        self._longest = max(map(len, pieces.ids), default=0)
        # Where no token has a space behind something else, merges never cross into a word.
        crossing = re.compile(f"[^{SPACE}]{SPACE}")
        self._by_words = not any(
            SPACE in token[1:] and crossing.search(token) for token in pieces.ids
        )
        self._word_ids: Callable[[str], tuple[int, ...]] = functools.lru_cache(_WORD_CACHE)(
            lambda word: tuple(self._ids(self._merge(word)))
        )

    def encode(
        self,
        text: str,
        *,
        parse_special: bool,
        at_start: bool,  # noqa: ARG002 - text behind a token has the space as well
    ) -> list[int]:
        whole = self._all if parse_special else self._always
        ids: list[int] = []
        end = 0
        for start, stop in whole.spans(text):
            ids += self._encode_plain(text[end:start])
            ids.append(self._whole[text[start:stop]])
            end = stop
        return ids + self._encode_plain(text[end:])

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        spaced = text.replace(" ", SPACE)
        if self._space_prefix:
            spaced = SPACE + spaced
        if not self._by_words:
            return self._ids(self._merge(spaced))
        ids: list[int] = []
        for word in re.findall(f"{SPACE}*[^{SPACE}]+|{SPACE}+", spaced):
            # Long ones are rare and would fill the cache.
            ids += self._word_ids(word) if len(word) <= 64 else self._ids(self._merge(word))
        return ids

    def _merge(self, text: str) -> list[str]:
        """`text` in pieces, none of which can be merged with its neighbour."""
        parts: list[str] = list(text)
        following = list(range(1, len(parts) + 1))
        before = list(range(-1, len(parts) - 1))
        heap: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            if left < 0 or right >= len(parts):
                return
            merged = parts[left] + parts[right]
            if len(merged) <= self._longest:
                token = self._pieces.ids.get(merged)
                if token is not None:
                    heapq.heappush(heap, (-self._pieces.scores[token], left, right, merged))

        for left in range(len(parts) - 1):
            offer(left, left + 1)
        while heap:
            _, left, right, merged = heapq.heappop(heap)
            # One of the two may have gone into another piece meanwhile, or have grown.
            if not parts[left] or not parts[right] or parts[left] + parts[right] != merged:
                continue
            parts[left], parts[right] = merged, ""
            following[left] = following[right]
            if following[left] < len(parts):
                before[following[left]] = left
            offer(before[left], left)
            offer(left, following[left])
        return [part for part in parts if part]

    def _ids(self, parts: Sequence[str]) -> list[int]:
        return list(self._each_id(parts))

    def _each_id(self, parts: Sequence[str]) -> Iterator[int]:
        pieces = self._pieces
        was_unknown = False
        for part in parts:
            token = pieces.ids.get(part)
            if token is None and not pieces.byte_ids:
                # One token stands for a whole run of what is unknown.
                if pieces.unknown is None:
                    raise TokenizerError(
                        f"The vocabulary cannot spell {part!r}: it has neither byte tokens nor an "
                        "unknown token."
                    )
                if not was_unknown:
                    yield pieces.unknown
                was_unknown = True
                continue
            was_unknown = False
            if token is not None:
                yield token
            else:
                yield from (pieces.byte_ids[byte] for byte in part.encode())
