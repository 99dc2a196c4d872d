"""Rendering of chat templates and their errors."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from crossinfer.core.errors import TemplateError
from crossinfer.text.chat_template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages: Any = USER, **variables: Any) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **variables)


def test_variables() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ add_generation_prompt }}"
    assert render(source) == "<s>hi</s>True"
    assert render(source, add_generation_prompt=False) == "<s>hi</s>False"
    assert render("{{ tools is none }}{{ documents is none }}") == "TrueTrue"
    assert render("{{ thinking }}", thinking="yes") == "yes"
    absent = ChatTemplate("[{{ bos_token }}]", bos_token=None, eos_token=None)
    assert absent.render(USER) == "[]"


def test_what_transformers_provides() -> None:
    assert render("{{ tools | tojson }}", tools=[{"a": "<é>"}]) == '[{"a": "<é>"}]'
    assert render("{{ tools | tojson(indent=1) }}", tools=[1]) == "[\n 1\n]"
    year = str(datetime.datetime.now().year)
    assert render("{{ strftime_now('%Y') }}") in (year, str(int(year) + 1))
    assert (
        render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "01"
    )
    assert render("{% generation %}a{{ messages|length }}{% endgeneration %}b") == "a1b"
    assert render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% if %}", "has an error in line 2"),
        ("a\n\n{{ raise_exception('Roles must alternate') }}", "in line 3: Roles must alternate"),
        ("a\n{{ messages[0]['content'] + 1 }}", "failed in line 2"),
        ("{{ nothing.there.at_all }}", "in line 1: 'nothing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "failed in line 1"),
        ("{{ messages.append(1) }}", "failed in line 1"),
    ],
)
def test_errors_name_the_line(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(message)):
        render(source)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", "must be a list of mappings"),
        ({"role": "user", "content": "x"}, "must be a list of mappings"),
        ([], "is empty"),
        (["hi"], "Message 0 is a str"),
        ([*USER, {"content": "x"}], "Message 1 has no 'role'"),
        ([{"role": "user"}], "'content' of message 0 is a NoneType"),
        ([{"role": "user", "content": ["x"]}], "'content' of message 0 is a list"),
    ],
)
def test_malformed_messages(messages: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(message)):
        render("", messages)


def test_tool_calls_stand_for_content() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert render("{{ messages[1].tool_calls[0].name }}", [*USER, call]) == "f"
