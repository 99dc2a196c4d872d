"""Conversations to ids: the template's control tokens count, the user's are text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.errors import TemplateError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.text.chat_prompt import CHATML, chat_template_for, encode_chat, turn_end_ids
from crossinfer.text.chat_template import ChatTemplate
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.tokenizer import Tokenizer

START, END = 265, 266
PARTS = [
    "<|im_end|>",
    "<|im_start|>",
    "<|im_",
    "end|>",
    "<s>",
    "<",
    ">",
    "a",
    " ",
    "\n",
    "\ue000",
    "\\ue001",
]
TEXT = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


@given(first=TEXT, second=TEXT)
def test_content_never_becomes_a_control_token(tiny: Tokenizer, first: str, second: str) -> None:
    template = chat_template_for(CHATML, tiny)
    ids = encode_chat(tiny, template, [*user(first), {"role": "assistant", "content": second}])
    assert [i for i in ids if tiny.is_special(i)] == [START, END, START, END, START]
    assert tiny.decode(ids, skip_special=False) == (
        f"<|im_start|>user\n{first}<|im_end|>\n<|im_start|>assistant\n{second}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@given(first=TEXT, second=TEXT)
def test_contents_do_not_join_to_a_control_token(tiny: Tokenizer, first: str, second: str) -> None:
    source = "{{ messages[0].content|trim }}{{ messages[1].content|trim }}"
    template = chat_template_for(source, tiny)
    ids = encode_chat(tiny, template, [*user(first), *user(second)])
    assert not any(map(tiny.is_special, ids))
    assert tiny.decode(ids) == first.strip() + second.strip()


def test_plain_and_marked_contents_encode_alike(tiny: Tokenizer) -> None:
    template = chat_template_for(CHATML, tiny)
    start = encode_chat(tiny, template, user("hello hello"))
    marked = encode_chat(tiny, template, user("hello hello<|im_end|>"))
    at = start.index(END)
    assert marked[:at] == start[:at]


def test_tools_are_guarded_as_well(tiny: Tokenizer) -> None:
    for ascii_only in (False, True):
        source = f"{{{{ tools | tojson(ensure_ascii={ascii_only}) }}}}"
        template = chat_template_for(source, tiny)
        ids = encode_chat(tiny, template, user("x"), tools=[{"name": "<|im_end|>"}])
        assert tiny.decode(ids, skip_special=False) == '[{"name": "<|im_end|>"}]'
        assert not any(map(tiny.is_special, ids))


def test_no_character_left_to_mark_with(tiny: Tokenizer) -> None:
    private = "".join(map(chr, [*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE)]))
    with pytest.raises(TemplateError, match="use all private-use characters"):
        encode_chat(tiny, chat_template_for(CHATML, tiny), user(private))


def test_one_bos_at_most(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.add_bos_token"] = True
    tokenizer = tokenizer_from_gguf(metadata)
    for source in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        for content in ("hello", "<s>hello"):
            ids = encode_chat(tokenizer, chat_template_for(source, tokenizer), user(content))
            assert ids == [267, *tokenizer.encode(content, add_bos=False)]


def test_default_template(metadata: dict[str, Any], tiny: Tokenizer) -> None:
    with pytest.warns(UserWarning, match="no chat template; messages are written as ChatML"):
        template = chat_template_for(None, tiny)
    rendered = template.render(user("hi"))
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    metadata["tokenizer.ggml.tokens"][START] = "<|begin|>"
    other = tokenizer_from_gguf(metadata)
    with pytest.warns(UserWarning, match="lines of 'role: content'"):
        template = chat_template_for(None, other)
    assert template.render(user("hi")) == "user: hi\nassistant:"


def test_smollm2(smollm2_path: Path) -> None:
    metadata = GGUFFile.open(smollm2_path).metadata
    tokenizer = tokenizer_from_gguf(metadata)
    source = metadata["tokenizer.chat_template"]
    assert isinstance(source, str)
    template = chat_template_for(source, tokenizer)
    assert isinstance(template, ChatTemplate)
    ids = encode_chat(tokenizer, template, user("Say <|im_end|> twice.<"))
    assert [i for i in ids if tokenizer.is_special(i)] == [1, 2, 1, 2, 1]
    assert "user\nSay <|im_end|> twice.<<|im_end|>\n" in tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        (CHATML, {END}),
        ("{% for m in messages %}{{ m.content }} <|im_end|>\n{% endfor %}", {END}),
        ("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", {END}),
        ("{% for m in messages %}{{ m.content }}, <|im_end|>{% endfor %}", set()),
        ("{% for m in messages %}<s>{{ m.content }}{% endfor %}", set()),
        ("{% for m in messages %}{{ m.content }}<s>{% endfor %}", set()),
        ("{{ messages[0].content }}", set()),
        ("{{ raise_exception('no') }}", set()),
        ("{% for m in messages %}{{ m.content }}<|im_start|>{% endfor %}", {START}),
    ],
)
def test_turn_ends_come_from_the_template(tiny: Tokenizer, source: str, ends: set[int]) -> None:
    assert turn_end_ids(tiny, chat_template_for(source, tiny)) == ends
