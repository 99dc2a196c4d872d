"""A conversation to token ids, so that nothing a user writes can become a control token."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from crossinfer.core.errors import TemplateError
from crossinfer.text.chat_template import ChatTemplate, Message, check_messages
from crossinfer.text.literals import Literals
from crossinfer.text.special_marks import SpecialMarks, texts_in
from crossinfer.text.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = (
    "{% for message in messages %}"
    "{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def chat_template_for(source: str | None, tokenizer: Tokenizer) -> ChatTemplate:
    """The model's template, or a default with a warning if `source` is None.

    The default is ChatML where the vocabulary has <|im_start|>, else lines of `role: content`.
    """
    if source is None:
        chatml = "<|im_start|>" in tokenizer.special_texts
        source = CHATML if chatml else PLAIN
        form = "ChatML" if chatml else "lines of 'role: content'"
        warnings.warn(
            f"The model has no chat template; messages are written as {form}, which may not be "
            "what it was trained on.",
            stacklevel=2,
        )
    bos, eos = (
        None if i is None else tokenizer.token_text(i) for i in (tokenizer.bos_id, tokenizer.eos_id)
    )
    return ChatTemplate(source, bos_token=bos, eos_token=eos)


def turn_end_ids(tokenizer: Tokenizer, template: ChatTemplate) -> frozenset[int]:
    """The control token that `template` writes behind an answer, which so ends a turn.

    None where it writes something else, or renders no answer by itself.
    """
    answer = "\ue000answer\ue000"
    messages = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": answer},
    ]
    try:
        rendered = template.render(messages, add_generation_prompt=False)
    except TemplateError:
        return frozenset()
    _, found, tail = rendered.rpartition(answer)
    for start, stop in Literals(tokenizer.special_texts).spans(tail if found else ""):
        token = tokenizer.special_texts[tail[start:stop]]
        if not tail[:start].strip() and token != tokenizer.bos_id:
            return frozenset((token,))
        break
    return frozenset()


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Any] | None = None,
    **variables: Any,
) -> list[int]:
    """The ids of a conversation: the template's control tokens parsed, those in messages text.

    There is one BOS at most, whether the template writes it or the model's file asks for it.
    Raises TemplateError and TokenizerError.
    """
    check_messages(messages)
    given = (messages, tools, variables)
    marks = SpecialMarks(tokenizer.special_texts, [template.source, *texts_in(given)])
    marked_messages, marked_tools, marked_variables = marks.mark(given)
    rendered = template.render(
        marked_messages,
        add_generation_prompt=add_generation_prompt,
        tools=marked_tools,
        **marked_variables,
    )
    if not marks.used:
        return tokenizer.encode(rendered, parse_special=True)
    return tokenizer.encode_parts(rendered, marks.restore)
