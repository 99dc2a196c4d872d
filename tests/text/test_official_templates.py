"""Official chat templates render as transformers renders them (`make_template_golden`)."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from tests.golden.make_template_golden import CASES, FOLDER, TEMPLATES, VARIABLES, Today

from crossinfer.core.errors import TemplateError
from crossinfer.text.chat_template import ChatTemplate

GOLDEN: dict[str, dict[str, str | None]] = json.loads(
    (FOLDER / "templates.json").read_text(encoding="utf-8")
)


def render(template: ChatTemplate, case: dict[str, Any]) -> str | None:
    """The text, or None where the template refuses the conversation."""
    variables = {key: value for key, value in VARIABLES.items() if not key.endswith("_token")}
    try:
        return template.render(**{**variables, **case})
    except TemplateError:
        return None


def test_every_template_has_goldens() -> None:
    assert sorted(GOLDEN) == [path.stem for path in TEMPLATES]
    assert all(list(cases) == list(CASES) for cases in GOLDEN.values())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_equals_transformers(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datetime, "datetime", Today)
    template = ChatTemplate(
        path.read_text(encoding="utf-8"),
        bos_token=VARIABLES["bos_token"],
        eos_token=VARIABLES["eos_token"],
    )
    for name, case in CASES.items():
        assert render(template, case) == GOLDEN[path.stem][name], name


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_long_conversations_are_within_the_budget(path: Any) -> None:
    template = ChatTemplate(path.read_text(encoding="utf-8"), bos_token=None, eos_token=None)
    turns = [
        {"role": role, "content": "<think>x</think> word" * size}
        for _ in range(300)
        for role, size in (("user", 1), ("assistant", 20))
    ]
    assert len(template.render([*turns, turns[0]])) > 10_000
    long = [{"role": "user", "content": "word " * 400_000}]
    assert len(template.render(long)) > 1_900_000
