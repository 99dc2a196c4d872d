"""Writes tokenizers.json: what transformers' tokenizers make of a corpus of awkward texts.

Needs `pip install transformers gguf`. Run from the repository's root as

    python -m tests.golden.make_tokenizer_golden SMOLLM2.gguf QWEN.gguf

with SmolLM2-135M-Instruct and Qwen2.5-Coder-0.5B-Instruct. transformers' GGUF loader ignores
`tokenizer.ggml.pre` and drops normalizers, so `reference_tokenizer` puts back what the models'
published tokenizer.json files have: for SmolLM2 single digits split off before GPT-2's rules, for
Qwen2.5 NFC.

Writes {"texts": [...], "<model>": [[ids of text 0], ...]}; special tokens in the texts are text.
"""
# ruff: noqa: RUF001 - look-alike characters are what the corpus is about

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MODELS = ("smollm2", "qwen2.5-coder-0.5b")
FOLDER = Path(__file__).parent

TEXTS = [
    "Why is the sky blue?",
    "",
    " ",
    "  leading, trailing  ",
    "tabs\tand\r\nnew lines\n\n\n  indented\n\t\tdeeper\r\rend",
    "def f(x):\n    return {k: v for k, v in x.items() if v != 0 and k >= 'a'}\n",
    "if (a->b != c::d || !e && f <= *g++) { h[i] ^= ~j << 2; } // ok\n",
    "x = (y):\n  -> !=  === <=> ... :: ?? ;;; ### @@ $$ %% ^^ && ** (( )) [[ ]] {{ }} || \\\\ //",
    "He's they're I'VE we'LL DON'T it'd 'twas o'clock 'm'",
    "0 12 345 6789 1234567890 3.14159 1,000,000 0x1F 1e-10 ½ ² ٣٤٥ Ⅷ 第3章 v2.0.1-rc3",
    "a1b22c333 4 5  66   777 8\n9 12:34:56",
    "café naïve Ångström über straße (NFC)",
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m u\u0308ber (NFD)",
    "combining: a\u0316\u0301\u0345 \u0301lone o\u0302\u0323\u0306 Z\u0351\u036b\u0343",
    "emoji 😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ ☕︎ 1️⃣",
    "日本語のテキストと、漢字。中文标点！한국어 텍스트 ｆｕｌｌ　ｗｉｄｔｈ",
    "שלום עולם! مرحبا بالعالم، كيف الحال؟ \u202eright-to-left\u202c mixed",
    "हिन्दी में पाठ, ภาษาไทยไม่มีช่องว่าง, Ελληνικά, русский текст, ქართული",
    "control \x00\x01\x07\x08\x0b\x0c\x1b[31m\x7f\x80\x85\x9f\xad\ufeff end",
    "spaces \u00a0nbsp \u2003em \u200bzero \u2028line \u2029par \u3000wide",
    "<|im_start|>user\n<|im_end|> <|endoftext|> <|im_end <im_end|> <repo_name> </s>",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "a" * 300,
    "abcdefghijklmnopqrstuvwxyz0123456789" * 20,
    "=" * 100 + "-" * 77 + "\n" + " " * 83 + "x",
    "supercalifragilistic" * 10 + "!?" * 40,
    "https://user:pw@example.com:8080/a/b%20c?q=1&r=ü#frag",
    "𝕬𝖇𝖈 𝟙𝟚𝟛 \U0001f9ff \U000e0041 \ue000 \ufffd \uffff",
    "SELECT * FROM t WHERE a='b''c' AND d IN (1,2,3);\n-- comment\n",
    '{"key": [1, 2.5, null, true], "nested": {"a\\"b": "\\u00e9"}}',
    "MixedCASEWords camelCaseWords snake_case_words kebab-case-words",
    "Ends with newline\n",
    "Ends with spaces   ",
    "\n\nStarts with newlines",
]


def reference_tokenizer(model: str, path: Path) -> Any:
    """transformers' tokenizer for the GGUF file at `path`, with the rules its loader drops."""
    from tokenizers import normalizers, pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    library = tokenizer.backend_tokenizer
    if model == "smollm2":
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    else:
        library.normalizer = normalizers.NFC()
    return tokenizer


def main(paths: list[str]) -> None:
    """Writes the golden file for the GGUF files at `paths`, one for each of MODELS."""
    golden: dict[str, Any] = {"texts": TEXTS}
    for model, path in zip(MODELS, paths, strict=True):
        tokenizer = reference_tokenizer(model, Path(path))
        golden[model] = [
            tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            for text in TEXTS
        ]
    lines = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in golden.items())
    (FOLDER / "tokenizers.json").write_text("{" + lines + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
