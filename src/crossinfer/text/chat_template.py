"""Chat templates: a conversation to the text that the model was trained on.

Templates are programs from strangers; they run in a sandbox within a budget of work, with what
transformers' `apply_chat_template` gives them (`template_sandbox`).
"""

from __future__ import annotations

import functools
import traceback
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossinfer.core.errors import TemplateError
from crossinfer.text.template_budget import TemplateLimit, spending

if TYPE_CHECKING:
    import jinja2

Message = Mapping[str, Any]

# The longest official ones have 20,000 characters; compiling takes time for each.
_LONGEST = 100_000
_LONGEST_REASON = 500


class ChatTemplate:
    """One template with the special tokens it may name. Threads may share it."""

    def __init__(self, source: str, *, bos_token: str | None, eos_token: str | None) -> None:
        self.source = source
        self._bos_token = bos_token
        self._eos_token = eos_token

    @functools.cached_property
    def _compiled(self) -> jinja2.Template:
        # Loading jinja takes a while, and not every use of a model needs it.
        import jinja2

        from crossinfer.text.template_sandbox import TemplateEnvironment

        if len(self.source) > _LONGEST:
            raise TemplateError(
                f"The model's chat template has {len(self.source)} characters; at most {_LONGEST} "
                "are taken."
            )
        try:
            with spending(None):
                return TemplateEnvironment().from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The model's chat template has an error in line {error.lineno}: {error.message}"
            ) from error
        except (SyntaxError, RecursionError, MemoryError, TemplateLimit, ValueError) as error:
            raise TemplateError(
                f"The model's chat template cannot be compiled{_parsed_line(error)}: its blocks or "
                "expressions are nested too deeply."
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
            with spending(values):
                return template.render(values)
        except Exception as error:  # a template's code can raise anything
            why = (str(error) or type(error).__name__)[:_LONGEST_REASON]
            if isinstance(error, RecursionError):  # Python's words for it vary
                why = "its macros or loops call themselves too deeply"
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


def _parsed_line(error: Exception) -> str:
    """Where in the template jinja's parser was when `error` arose, if it was there."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [frame.f_locals.get("lineno") for frame in frames if _is_parser(frame)]
    known = [line for line in lines if isinstance(line, int)]
    return f" in line {known[-1]}" if known else ""


def _is_parser(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__") == "jinja2.parser"


def _line_of(error: Exception) -> str:
    """Where in the template `error` arose, from the lines that jinja2 put into its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in ("<template>", "<unknown>")]
    return f" in line {lines[-1]}" if lines else ""
