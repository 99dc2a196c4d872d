"""Text to token ids and back, for byte-level BPE vocabularies, on the `tokenizers` library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crossinfer.core.errors import TokenizerError
from crossinfer.text import byte_level
from crossinfer.text.detokenizer import Detokenizer
from crossinfer.text.special_marks import any_of

if TYPE_CHECKING:
    import tokenizers

END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>")


class Tokenizer:
    """A vocabulary with its rules. Threads may share one.

    `vocab_size` counts the ids that decode, holes and padding included. `end_ids` are all the ids
    that end a turn: end of sequence, end of turn, and the control tokens known for it.
    """

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        tokens: Sequence[str],
        *,
        control: Iterable[int],
        literal: Mapping[int, bytes],
        bos_id: int | None,
        eos_id: int | None,
        end_ids: Iterable[int],
        add_bos: bool,
    ) -> None:
        """`tokens` are the spellings by id; `literal` has the bytes of those not in byte-level.

        `library` splits and merges; it must know the `control` ids as special added tokens and
        leave BOS to us. Raises TokenizerError for special ids outside the vocabulary.
        """
        self.vocab_size = len(tokens)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self._library = library
        self._tokens = tokens
        self._literal = literal
        self._control = frozenset(control)
        self._add_bos = add_bos
        self._lock = threading.Lock()
        self.special_texts: Mapping[str, int] = {
            tokens[i]: i for i in sorted(self._control) if tokens[i]
        }
        self._special_pattern = any_of(self.special_texts)
        known = {self.special_texts[text] for text in END_OF_TURN if text in self.special_texts}
        own = set() if eos_id is None else {eos_id}
        self.end_ids = frozenset(end_ids) | known | own
        for special in {*self.end_ids, *(() if bos_id is None else (bos_id,))}:
            if not 0 <= special < self.vocab_size:
                raise TokenizerError(
                    f"The model names {special} as a special token, but its vocabulary has "
                    f"{self.vocab_size} tokens; the file is damaged or was converted wrongly."
                )

    def encode(
        self, text: str, *, parse_special: bool = False, add_bos: bool | None = None
    ) -> list[int]:
        """The ids of `text`.

        The text of a control token is plain text unless `parse_special`. `add_bos` None does what
        the model's file says; a BOS that is already there is never doubled. Raises TokenizerError
        for text that has no UTF-8 form.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"The text cannot be tokenized: its character {error.start} is half of a "
                "surrogate pair and has no UTF-8 form; remove it."
            ) from error
        # The library keeps this switch as state, so switching and encoding go together.
        with self._lock:
            self._library.encode_special_tokens = not parse_special
            ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return self.with_bos(ids, add_bos)

    def encode_parts(
        self, text: str, restore: Callable[[str], str], *, add_bos: bool | None = None
    ) -> list[int]:
        """The ids of `text`: its control tokens parsed, all between them plain.

        `restore` is applied to the text between control tokens before it is encoded; so text that
        was altered to look like none comes back. Raises TokenizerError.
        """
        ids: list[int] = []
        end = 0
        for match in self._special_pattern.finditer(text):
            ids += self.encode(restore(text[end : match.start()]), add_bos=False)
            ids.append(self.special_texts[match.group()])
            end = match.end()
        ids += self.encode(restore(text[end:]), add_bos=False)
        return self.with_bos(ids, add_bos)

    def with_bos(self, ids: list[int], add_bos: bool | None = None) -> list[int]:
        """`ids` behind one BOS if it is wanted (None: what the file says) and not there yet."""
        wanted = self._add_bos if add_bos is None else add_bos
        if not wanted or self.bos_id is None or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD. Raises TokenizerError."""
        raw = b"".join(
            self.token_bytes(i) for i in ids if not (skip_special and self.is_special(i))
        )
        return raw.decode("utf-8", "replace")

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """A fresh incremental decoder for one sequence."""
        return Detokenizer(self, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; a special one's text. Raises TokenizerError."""
        self._check(token)
        literal = self._literal.get(token)
        return byte_level.to_bytes(self._tokens[token]) if literal is None else literal

    def token_text(self, token: int) -> str:
        """A token as the vocabulary spells it. Raises TokenizerError."""
        self._check(token)
        return self._tokens[token]

    def is_special(self, token: int) -> bool:
        """Whether `token` is a control token, which is not part of the text a user sees."""
        return token in self._control

    def _check(self, token: int) -> None:
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(
                f"The token id {token} is not in the vocabulary, whose ids are 0 to "
                f"{self.vocab_size - 1}."
            )
