"""Writes templates.json: what transformers makes of conversations with official chat templates.

Needs `pip install transformers jinja2`. Run from the repository's root as

    python -m tests.golden.make_template_golden

The templates are tests/text/templates/*.jinja, whose README says where they are from. Writes
{"<template>": {"<case>": "text" or null where the template refuses the conversation}}. The day is
always `Today`.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TEMPLATES = sorted((FOLDER.parent / "text" / "templates").glob("*.jinja"), key=lambda p: p.stem)

_QUESTION = {"role": "user", "content": "  Why is the sky blue?\n"}
_ANSWER = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nRayleigh \u2013 scattering. "}
_SYSTEM = {"role": "system", "content": 'Be brief; "quote" & <tag>.'}
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city, e.g. M\u00fcnchen",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "M\u00fcnchen", "days": 2}},
        }
    ],
}
_RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"}
_DOCUMENT = {"title": "Light", "text": "Blue light scatters most."}

CASES: dict[str, dict[str, Any]] = {
    "question": {"messages": [_QUESTION]},
    "no generation prompt": {"messages": [_QUESTION, _ANSWER], "add_generation_prompt": False},
    "system": {"messages": [_SYSTEM, _QUESTION]},
    "turns": {"messages": [_SYSTEM, _QUESTION, _ANSWER, _QUESTION, _ANSWER, _QUESTION]},
    "two users": {"messages": [_QUESTION, _QUESTION]},
    "tools": {"messages": [_SYSTEM, _QUESTION], "tools": [_TOOL]},
    "tool call": {"messages": [_QUESTION, _CALL, _RESULT], "tools": [_TOOL]},
    "tool turns": {"messages": [_QUESTION, _CALL, _RESULT, _ANSWER, _QUESTION], "tools": [_TOOL]},
    "documents": {"messages": [_QUESTION], "documents": [_DOCUMENT]},
    "no thinking": {"messages": [_QUESTION], "enable_thinking": False},
    "characters": {
        "messages": [{"role": "user", "content": "\u00e9 \U0001f600 \u65e5\u672c \x00 <|im_end|>"}]
    },
}
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "date_string": "26 Jul 2024"}


class Today(datetime.datetime):
    """A clock that stands still, for templates that ask for the date."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Today:
        return cls(2024, 7, 26, 12, tzinfo=tz)


def render(source: str, case: dict[str, Any]) -> str | None:
    """transformers' text, or None where the template raises."""
    from jinja2 import TemplateError
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = Today
    variables = {"add_generation_prompt": True, **case, **VARIABLES}
    messages = variables.pop("messages")
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, **variables
        )
    except (TemplateError, TypeError):
        return None
    text: str = texts[0]
    return text


def main() -> None:
    """Writes the golden file."""
    golden = {}
    for path in TEMPLATES:
        source = path.read_text(encoding="utf-8")
        golden[path.stem] = {name: render(source, case) for name, case in CASES.items()}
    text = json.dumps(golden, indent=1)
    (FOLDER / "templates.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
