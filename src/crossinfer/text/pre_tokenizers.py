"""How each family of byte-level BPE models cuts text into words before merging.

Named as GGUF's `tokenizer.ggml.pre` names them. Sources: the models' own tokenizer.json, and the
table of regular expressions in llama.cpp's `llama-vocab.cpp`, which agrees.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)


@dataclasses.dataclass(frozen=True)
class PreTokenizer:
    """The rules of one family.

    `pattern` None stands for GPT-2's own, which the library has built in; `digits` splits each
    digit off first. `nfc` normalizes the text. `ignore_merges` takes a whole word that is in the
    vocabulary without merging it; `add_bos` holds where the file says nothing.
    """

    pattern: str | None = None
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The library's form of it."""
        from tokenizers import Regex
        from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

        byte_level = ByteLevel(add_prefix_space=False, use_regex=self.pattern is None)
        if self.digits:
            return Sequence([Digits(individual_digits=True), byte_level])
        if self.pattern is not None:
            return Sequence([Split(Regex(self.pattern), "isolated"), byte_level])
        return byte_level


GPT2 = PreTokenizer()
_LLAMA_BPE = PreTokenizer(LLAMA3, ignore_merges=True, add_bos=True)
PRE_TOKENIZERS = {
    "gpt-2": GPT2,
    "default": GPT2,
    "smollm": PreTokenizer(digits=True),
    "qwen2": PreTokenizer(QWEN2, nfc=True),
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
}


def pre_tokenizer_named(name: str) -> PreTokenizer:
    """The rules called `name`; for an unknown name a warning and those of GPT-2."""
    known = PRE_TOKENIZERS.get(name)
    if known is None:
        warnings.warn(
            f"The model's pre-tokenizer {name!r} is not known; text is cut by the rules of GPT-2, "
            "which can lower the quality of answers.",
            stacklevel=2,
        )
        return GPT2
    return known
