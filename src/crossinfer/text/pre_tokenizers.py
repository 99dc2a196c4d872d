"""How each family of byte-level BPE models cuts text into words before merging.

Named as GGUF's `tokenizer.ggml.pre` names them. Sources: the models' own tokenizer.json, and the
table of regular expressions in llama.cpp's `llama-vocab.cpp`, which agrees.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from crossinfer.core.errors import shown
from crossinfer.core.records import record

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)
QWEN35 = QWEN2.replace(r"\p{L}+|\p{N}", r"[\p{L}\p{M}]+|\p{N}").replace(r"\s\p{L}", r"\s\p{L}\p{M}")
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_CJK = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_CASED = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}"
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}"
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}"
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}"
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}"
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED}]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    _CJK,
)
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK)


@record
class PreTokenizer:
    """The rules of one family.

    Each of `patterns` cuts what the one before it left; without any, GPT-2's own, which the library
    has built in, cuts. `digits` then (or first) splits off each digit. `nfc` normalizes the text.
    `ignore_merges` takes a whole word that is in the vocabulary without merging it; `add_bos` holds
    where the file says nothing.
    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The library's form of it."""
        from tokenizers import Regex
        from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

        splits = [Split(Regex(pattern), "isolated") for pattern in self.patterns]
        digits = [Digits(individual_digits=True)] if self.digits else []
        byte_level = ByteLevel(add_prefix_space=False, use_regex=not splits)
        return Sequence([*splits, *digits, byte_level])


GPT2 = PreTokenizer()
_DIGITS = PreTokenizer(digits=True)
_QWEN2 = PreTokenizer((QWEN2,), nfc=True)
_LLAMA_BPE = PreTokenizer((LLAMA3,), ignore_merges=True, add_bos=True)
PRE_TOKENIZERS = {
    "gpt-2": GPT2,
    "default": GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": PreTokenizer((QWEN35,)),
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "deepseek-llm": PreTokenizer(DEEPSEEK_LLM, digits=True),
    "deepseek-coder": PreTokenizer(DEEPSEEK_CODER, digits=True),
    "deepseek-v3": PreTokenizer(DEEPSEEK3),
}


def pre_tokenizer_named(name: object) -> PreTokenizer:
    """The rules called `name`; for an unknown name a warning and those of GPT-2."""
    known = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if known is None:
        warnings.warn(
            f"The model's pre-tokenizer {shown(name)} is not known; text is cut by the rules of "
            "GPT-2, which can lower the quality of answers.",
            stacklevel=2,
        )
        return GPT2
    return known
