"""A byte-level BPE vocabulary for test models: 256 bytes, merges of English words, specials.

It is small and valid, as a GGUF file's lists and as a tokenizer.json. For real shapes, tokens that
no text reaches pad it to the model's size.
"""

from __future__ import annotations

import dataclasses
from typing import Any

NORMAL, CONTROL, UNUSED = 1, 3, 5  # ggml's token types

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_WORDS = (
    "Ġthe Ġa Ġand Ġto Ġof Ġin Ġis Ġyou Ġthat Ġit Ġfor Ġon Ġwith Ġas Ġwas Ġare Ġthis Ġhave Ġfrom "
    "Ġnot Ġword Ġwhat Ġall Ġwere Ġwhen Ġyour Ġcan Ġsaid Ġhello Ġworld ing er ed es ly ĊĊ ĠĠĠĠ é"
)

# What splits a text before the merges, by the name that GGUF files give it. Source: the
# tokenizer.json of Qwen2 and of Llama 3.
_SPLITS = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def byte_characters() -> list[str]:
    """The printable character that stands for each byte, as GPT-2 chose them."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """Merges that build the words above from left to right, each once."""
    characters = byte_characters()
    found: dict[tuple[str, str], None] = {}
    for word in _WORDS.split():
        # Ġ and Ċ stand for themselves; anything else outside ASCII is spelled in its bytes.
        spelled = "".join(
            c if c in "ĠĊ" else "".join(characters[b] for b in c.encode()) for c in word
        )
        for end in range(1, len(spelled)):
            found[spelled[:end], spelled[end]] = None
    return list(found)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, ggml's type of each, merges in the order of their rank.

    `pre` names how text is split first; `add_bos` says whether a text begins with END_OF_TEXT.
    """

    tokens: list[str]
    types: list[int]
    merges: list[tuple[str, str]]
    pre: str
    add_bos: bool

    def id_of(self, token: str) -> int:
        return self.tokens.index(token)

    def tokenizer_json(self) -> dict[str, Any]:
        """The content of a tokenizer.json."""
        specials = [
            {
                "id": self.id_of(token),
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIALS
        ]
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        }
        split = {
            "type": "Split",
            "pattern": {"Regex": _SPLITS[self.pre]},
            "behavior": "Isolated",
            "invert": False,
        }
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": specials,
            "normalizer": {"type": "NFC"} if self.pre == "qwen2" else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": self._begin_with_bos() if self.add_bos else byte_level,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": self.pre == "llama-bpe",
                # Special tokens too: the library gives those that are missing here new ids.
                "vocab": {token: number for number, token in enumerate(self.tokens)},
                "merges": [list(pair) for pair in self.merges],
            },
        }

    def _begin_with_bos(self) -> dict[str, Any]:
        bos = {"SpecialToken": {"id": END_OF_TEXT, "type_id": 0}}
        first, second = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
        return {
            "type": "TemplateProcessing",
            "single": [bos, first],
            "pair": [bos, first, second],
            "special_tokens": {
                END_OF_TEXT: {
                    "id": END_OF_TEXT,
                    "ids": [self.id_of(END_OF_TEXT)],
                    "tokens": [END_OF_TEXT],
                }
            },
        }

    def tokenizer_config(self) -> dict[str, Any]:
        """The content of a tokenizer_config.json."""
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": END_OF_TEXT,
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "add_bos_token": self.add_bos,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1 << 20,
            "chat_template": CHAT_TEMPLATE,
        }


def make_vocabulary(pre: str, add_bos: bool, size: int) -> Vocabulary:
    """The vocabulary, padded to `size` tokens. Raises ValueError if that is too few."""
    merges = _merges()
    tokens = byte_characters() + ["".join(pair) for pair in merges]
    types = [NORMAL] * len(tokens) + [CONTROL] * len(SPECIALS)
    tokens += SPECIALS
    missing = size - len(tokens)
    if missing < 0:
        raise ValueError(f"the vocabulary has {len(tokens)} tokens, more than {size}")
    tokens += [f"<|unused_{index}|>" for index in range(missing)]
    types += [UNUSED] * missing
    return Vocabulary(tokens, types, merges, pre, add_bos)
