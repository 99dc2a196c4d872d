"""Chat templates: a conversation to the text that the model was trained on.

Templates are programs from strangers; they run in jinja2's immutable sandbox, with what
transformers' `apply_chat_template` gives them.
"""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossinfer.core.errors import TemplateError

if TYPE_CHECKING:
    import jinja2

Message = Mapping[str, Any]


class ChatTemplate:
    """One template with the special tokens it may name. Threads may share it."""

    def __init__(self, source: str, *, bos_token: str | None, eos_token: str | None) -> None:
        self.source = source
        self._bos_token = bos_token
        self._eos_token = eos_token

    @functools.cached_property
    def _compiled(self) -> jinja2.Template:
        import jinja2

        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The model's chat template has an error in line {error.lineno}: {error.message}"
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **variables: Any,
    ) -> str:
        """The conversation as text; with the beginning of an answer if `add_generation_prompt`.

        `variables` are handed to the template as they are. Raises TemplateError for malformed
        messages, and with the template's line when the template is broken or refuses them.
        """
        check_messages(messages)
        values = {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self._bos_token or "",
            "eos_token": self._eos_token or "",
            **variables,
        }
        template = self._compiled
        try:
            return template.render(values)
        except Exception as error:  # a template's code can raise anything
            why = str(error) or type(error).__name__
            raise TemplateError(
                f"The model's chat template failed{_line_of(error)}: {why}"
            ) from error


def check_messages(messages: Sequence[Message]) -> None:
    """Raises TemplateError unless each message is a mapping with a role and a content of text.

    Content may be absent where there are tool calls instead.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise TemplateError(
            "Messages must be a list of mappings with 'role' and 'content', not a "
            f"{type(messages).__name__}."
        )
    if not messages:
        raise TemplateError("The list of messages is empty; give at least one.")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TemplateError(
                f"Message {number} is a {type(message).__name__}; it must be a mapping with 'role' "
                "and 'content'."
            )
        if not isinstance(message.get("role"), str):
            raise TemplateError(f"Message {number} has no 'role' that is text.")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise TemplateError(
                f"The 'content' of message {number} is a {type(content).__name__}; it must be text."
            )


def _environment() -> jinja2.Environment:
    import datetime

    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import Node, Scope
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks answers for training; here it only wraps its body."""

        tags = {"generation"}  # noqa: RUF012 - the base class declares it so

        def parse(self, parser: Parser) -> Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return Scope(body, lineno=line)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own escapes HTML, which no model was trained on.
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _line_of(error: Exception) -> str:
    """Where in the template `error` arose, from the lines that jinja2 put into its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in ("<template>", "<unknown>")]
    return f" in line {lines[-1]}" if lines else ""
