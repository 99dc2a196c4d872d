"""Text to token ids and back: what all vocabularies have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from crossinfer.core.errors import TokenizerError
from crossinfer.text.detokenizer import Detokenizer
from crossinfer.text.encoders import Encoder
from crossinfer.text.literals import Literals

END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<eos>",
    "<EOT>",
    "<|EOT|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""Added tokens that end a turn in every model that has them. Source: llama.cpp's `llama-vocab`."""

# What Unicode calls White_Space; Python's own idea of it has a few control characters more.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


class Tokenizer:
    """A vocabulary with its rules. Threads may share one.

    `vocab_size` counts the ids that decode, holes and padding included. `end_ids` are all the ids
    that end a turn: end of sequence, end of turn, and the control tokens known for it.
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: Sequence[str],
        *,
        spell: Callable[[str], bytes],
        literal: Mapping[int, bytes],
        control: Iterable[int],
        added: Iterable[int],
        bos_id: int | None,
        eos_id: int | None,
        end_ids: Iterable[int],
        add_bos: bool,
        space_prefix: bool = False,
        strips: Mapping[int, tuple[bool, bool]] | None = None,
    ) -> None:
        """`tokens` are the spellings by id; `spell` has their bytes, but for those in `literal`.

        `added` are the tokens that are taken whole, `control` those of them that are not text.
        `space_prefix` says that the encoder puts a space before a text, which `decode` takes off.
        `strips` tells of control tokens whether they swallow white space before and after them.
        Raises TokenizerError for special ids outside the vocabulary.
        """
        self.vocab_size = len(tokens)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self._encoder = encoder
        self._tokens = tokens
        self._spell = spell
        self._literal = literal
        self._control = frozenset(control)
        self._add_bos = add_bos
        self._space_prefix = space_prefix
        self._strips = strips or {}
        self.special_texts: Mapping[str, int] = {
            tokens[i]: i for i in sorted(self._control) if tokens[i]
        }
        self._specials = Literals(self.special_texts)
        known = {i for i in added if tokens[i] in END_OF_TURN}
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
        self._check_text(text)
        ids = self._encoder.encode(text, parse_special=parse_special, at_start=True)
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
        for start, stop in self._specials.spans(text):
            token = self.special_texts[text[start:stop]]
            strips_before, strips_after = self._strips.get(token, (False, False))
            plain = text[end:start]
            ids += self._encode_plain(
                restore(plain.rstrip(_WHITE_SPACE) if strips_before else plain), at_start=end == 0
            )
            ids.append(token)
            end = stop
            while strips_after and end < len(text) and text[end] in _WHITE_SPACE:
                end += 1
        ids += self._encode_plain(restore(text[end:]), at_start=end == 0)
        return self.with_bos(ids, add_bos)

    def _encode_plain(self, text: str, *, at_start: bool) -> list[int]:
        self._check_text(text)
        return self._encoder.encode(text, parse_special=False, at_start=at_start)

    @staticmethod
    def _check_text(text: str) -> None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"The text cannot be tokenized: its character {error.start} is half of a "
                "surrogate pair and has no UTF-8 form; remove it."
            ) from error

    def with_bos(self, ids: list[int], add_bos: bool | None = None) -> list[int]:
        """`ids` behind one BOS if it is wanted (None: what the file says) and not there yet."""
        wanted = self._add_bos if add_bos is None else add_bos
        if not wanted or self.bos_id is None or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]

    def decode(
        self, ids: Iterable[int], *, skip_special: bool = True, continued: bool = False
    ) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD. Raises TokenizerError.

        Where `encode` puts a space before a text it is taken off, unless `ids` are `continued`:
        the rest of a text that began before them.
        """
        raw = b"".join(
            self.token_bytes(i) for i in ids if not (skip_special and self.is_special(i))
        )
        if self._space_prefix and not continued:
            raw = raw.removeprefix(b" ")
        return raw.decode("utf-8", "replace")

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """A fresh incremental decoder for one sequence that continues a text."""
        return Detokenizer(self, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; a special one's text. Raises TokenizerError."""
        self._check(token)
        literal = self._literal.get(token)
        return self._spell(self._tokens[token]) if literal is None else literal

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
