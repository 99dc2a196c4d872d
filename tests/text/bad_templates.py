"""Every kind of broken or hostile chat template, and of messages that no template is for."""

from __future__ import annotations

from typing import Any

from tests.robustness_table import Kind
from tests.text.small_vocabularies import tiny_metadata

from crossinfer.text.chat_prompt import chat_template_for
from crossinfer.text.chat_template import ChatTemplate
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf

AREA = "Chat templates"
USER = [{"role": "user", "content": "hi"}]

_SHARED = (
    "{% set ns = namespace(v=(1,)) %}\n"
    "{% for i in range(90) %}{% set ns.v = (ns.v, ns.v) %}{% endfor %}\n"
)
_GROWING = "{% set ns = namespace(v='ab') %}\n{% for i in range(90) %}{% set ns.v = "


def _kind(kind: str, source: str) -> Kind:
    return Kind(AREA, kind, lambda _: render(source))


def render(source: str, messages: Any = USER) -> str:
    """The text, although it should not come to that."""
    text = ChatTemplate(source, bos_token=None, eos_token=None).render(messages)
    assert text is not None, "rendered"
    return ""


def _messages(kind: str, messages: Any) -> Kind:
    return Kind("Messages", kind, lambda _: render("", messages))


def _no_template(_folder: Any) -> None:
    chat_template_for(None, tokenizer_from_gguf(tiny_metadata()))


KINDS = (
    Kind(AREA, "no template", _no_template),
    _kind("a syntax error", "a\n{% if %}"),
    _kind("an unknown filter", "a\n{{ 1 | to_moon }}"),
    _kind("an undefined variable", "a\n\n{{ nothing.there }}"),
    _kind("the template's own refusal", "a\n{{ raise_exception('Roles must alternate') }}"),
    _kind("a refusal of a megabyte", "{{ raise_exception('x' * 1000000) }}"),
    _kind("another template", "\n{% include 'other' %}"),
    _kind(
        "loops without end",
        "{% for a in range(99999) %}\n{% for b in range(99999) %}{% endfor %}\n{% endfor %}",
    ),
    _kind(
        "a loop that takes nothing",
        "{% for a in range(9999) %}\n{% for b in range(99999) if 0 %}{% endfor %}\n{% endfor %}",
    ),
    _kind("a macro that calls itself", "\n{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
    _kind(
        "a macro that calls itself twice",
        "\n{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ),
    _kind(
        "a loop that calls itself",
        "\n{% for x in [1, 2] recursive %}{{ loop([1, 2, 3]) }}{% endfor %}",
    ),
    _kind("a block that calls itself", "{% block a %}\n{{ self.a() }}{% endblock %}"),
    _kind("a text of 10 GB", "\n{{ 'a' * 10000000000 }}"),
    _kind("a list of 10 billion", "\n{{ [1] * 10000000000 }}"),
    _kind("a text that doubles", _GROWING + "ns.v ~ ns.v %}{% endfor %}"),
    _kind("a sum that doubles", _GROWING + "ns.v + ns.v %}{% endfor %}"),
    _kind("a replacement that grows", _GROWING + "ns.v.replace('a', ns.v) %}{% endfor %}"),
    _kind(
        "a large constant written often",
        "{% for i in range(9999) %}\n" + "x" * 9999 + "{% endfor %}",
    ),
    _kind("a huge number", "\n{{ 9 ** (9 ** 9) }}"),
    _kind(
        "a number that squares itself", _GROWING.replace("'ab'", "9") + "ns.v * ns.v %}{% endfor %}"
    ),
    _kind("shared lists printed", _SHARED + "{{ ns.v }}"),
    _kind("shared lists as JSON", _SHARED + "{{ ns.v | tojson }}"),
    _kind("shared lists compared", _SHARED + "{{ ns.v == [ns.v] }}"),
    _kind("shared lists as a key", _SHARED + "{{ {ns.v: 1} }}"),
    _kind("a namespace in itself", "{% set a = namespace() %}\n{% set a.a = a %}{{ a }}"),
    _kind("padding to a gigabyte", "\n{{ 'x' | center(1000000000) }}"),
    _kind("padding by a method", "\n{{ 'x'.ljust(1000000000) }}"),
    _kind("a format of a gigabyte", "\n{{ '{:1000000000}'.format(1) }}"),
    _kind("a format with a width beside it", "\n{{ '{:{}}'.format(1, 1000000000) }}"),
    _kind("an old format of a gigabyte", "\n{{ '%1000000000d' % 1 }}"),
    _kind("an indent of a gigabyte", "\n{{ [1] | tojson(indent=1000000000) }}"),
    _kind("joining with a long separator", "\n{{ range(99999) | join('x' * 9999) }}"),
    _kind(
        "sorting again and again",
        "{% for i in range(9999) %}\n{{ range(9999) | sort }}{% endfor %}",
    ),
    _kind("loops nested too deeply", "\n{% for a in b %}" * 40 + "{% endfor %}" * 40),
    _kind("parentheses nested too deeply", "\n{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
    _kind("a template of 1 MB", "x" * 1_000_000),
    _kind("reaching for Python's classes", "\n{{ ''.__class__.__mro__ }}"),
    _kind("reaching for Python's modules", "\n{{ namespace.__init__.__globals__ }}"),
    _kind("reaching through a format", "\n{{ '{0.__class__.__mro__}'.format('') + 1 }}"),
    _kind("a hidden name in a namespace", "\n{% set a = namespace(__class__=1) %}"),
    _kind("changing the messages", "\n{{ messages.append(1) }}"),
    _kind("a method that is not for templates", "\n{{ 'a'.encode() }}"),
    _messages("text instead of a list", "hi"),
    _messages("no messages", []),
    _messages("a message that is text", ["hi"]),
    _messages("a message without a role", [{"content": "hi"}]),
    _messages("a message without content", [{"role": "user"}]),
    _messages("content that is a list", [{"role": "user", "content": ["hi"]}]),
)
