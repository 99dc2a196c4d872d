"""The merges of a byte-level BPE vocabulary as a sorted table, which is of use as soon as it is
read.

The `tokenizers` library builds its own in 40 ms for 49,000 merges and in 180 ms for 151,000: more
than a prompt takes to encode. So tables are kept in the cache, by a digest of the vocabulary.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import struct
from collections.abc import Iterable, Sequence

import numpy as np

from crossinfer.core.cache import cache_folder, keep_entry, read_entry
from crossinfer.core.dtypes import Array
from crossinfer.text.byte_level import BYTE_TO_CHAR

_VERSION = 1
_HEADER = struct.Struct("<QQ")
_NONE = 1 << 64
"""What a pair without a merge counts as: behind all that have one."""
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1


class MergeTable:
    """Merges of pairs of tokens, and whole words by their digests. Threads may share one.

    A merge is two numbers of 64 bits: the pair (left token, right token), by which the table is
    sorted, and (rank, token that it makes).
    """

    def __init__(self, raw: bytes) -> None:
        """`raw` is what `pack_table` gave: sizes, bytes' tokens, pairs, merges, words, their ids.

        Raises ValueError if it is something else.
        """
        if len(raw) < _HEADER.size:
            raise ValueError("the table is cut short")
        merges, words = _HEADER.unpack_from(raw)
        sizes = [256 * 8, merges * 8, merges * 8, words * 8, words * 8]
        borders = list(itertools.accumulate(sizes, initial=_HEADER.size))
        if borders[-1] != len(raw):
            raise ValueError("the table does not have the size that it names")
        whole = memoryview(raw)
        singles, self._pairs, self._merges, self._words, self._word_ids = (
            whole[start:end].cast("Q") for start, end in itertools.pairwise(borders)
        )
        self._single_ids = {
            char: singles[byte] for byte, char in BYTE_TO_CHAR.items() if singles[byte] != _ID_MASK
        }

    @property
    def unspelled(self) -> frozenset[int]:
        """The bytes that the vocabulary has no token for."""
        return frozenset(b for b, char in BYTE_TO_CHAR.items() if char not in self._single_ids)

    def word_id(self, word: str) -> int | None:
        """The token that may be `word`, which the caller compares; None if none is."""
        digest = _word_digest(word)
        at = bisect.bisect_left(self._words, digest)
        found = at < len(self._words) and self._words[at] == digest
        return self._word_ids[at] if found else None

    def encode(self, word: str) -> list[int]:
        """The tokens of a word in the characters of byte-level BPE, all of whose bytes have one.

        The pair of the lowest rank is merged first, of equal ones the leftmost, until none is left
        (Sennrich et al. 2016). Takes time in the square of the word's length.
        """
        ids = [self._single_ids[char] for char in word]
        merges = [self._merge(left, right) for left, right in itertools.pairwise(ids)]
        while merges and (best := min(merges)) != _NONE:
            at = merges.index(best)
            ids[at : at + 2] = [best & _ID_MASK]
            del merges[at]
            if at:
                merges[at - 1] = self._merge(ids[at - 1], ids[at])
            if at < len(merges):
                merges[at] = self._merge(ids[at], ids[at + 1])
        return ids

    def _merge(self, left: int, right: int) -> int:
        pair = left << _ID_BITS | right
        at = bisect.bisect_left(self._pairs, pair)
        if at < len(self._pairs) and self._pairs[at] == pair:
            return self._merges[at]
        return _NONE


def pack_table(tokens: Sequence[str], merges: Sequence[str], *, whole_words: bool) -> bytes:
    """The bytes of a table. Every merge must join two tokens to a third.

    `whole_words` adds what `word_id` finds.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    pairs, results = [], []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append(ids[left] << _ID_BITS | ids[right])
        results.append(ids[left + right])
    made = np.arange(len(merges), dtype=np.uint64) << _ID_BITS | np.array(results, np.uint64)
    # Of a pair that is there twice the library takes the later one.
    by_pair = dict(zip(pairs, made.tolist(), strict=True))
    by_word = {_word_digest(token): i for i, token in enumerate(tokens)} if whole_words else {}
    singles = [ids.get(BYTE_TO_CHAR[byte], _ID_MASK) for byte in range(256)]
    return b"".join(
        (
            _HEADER.pack(len(by_pair), len(by_word)),
            np.array(singles, np.uint64).tobytes(),
            *(part.tobytes() for part in _sorted(by_pair)),
            *(part.tobytes() for part in _sorted(by_word)),
        )
    )


def _sorted(entries: dict[int, int]) -> tuple[Array, Array]:
    keys = np.fromiter(entries.keys(), np.uint64, len(entries))
    values = np.fromiter(entries.values(), np.uint64, len(entries))
    order = np.argsort(keys)
    return keys[order], values[order]


def _word_digest(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


class KeptTable:
    """The place of one vocabulary's table in the cache folder."""

    def __init__(self, vocabulary: Iterable[bytes | memoryview]) -> None:
        """`vocabulary` is all that the table, and the checks before it was made, depend on."""
        digest = hashlib.sha256(f"merges {_VERSION}".encode())
        for part in vocabulary:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        self._path = cache_folder("vocabularies") / f"{digest.hexdigest()[:32]}.table"

    def read(self) -> MergeTable | None:
        """The table, if it was kept and is whole."""
        raw = read_entry(self._path)
        try:
            return None if raw is None else MergeTable(raw)
        except ValueError:
            return None

    def keep(self, raw: bytes) -> None:
        keep_entry(self._path, raw)
