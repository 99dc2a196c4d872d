"""Options and messages as JSON texts, checked before anything is done with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from crossinfer.embedding.status import CallError, Status


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_bias(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key.isdecimal() and _is_number(bias) for key, bias in value.items()
    )


Kind = tuple[Callable[[Any], bool], str]

_WHOLE: Kind = (_is_whole, "a whole number")
_WHOLE_OR_NULL: Kind = (lambda value: value is None or _is_whole(value), "a whole number or null")
_NUMBER: Kind = (_is_number, "a number")
_SWITCH: Kind = (lambda value: isinstance(value, bool), "true or false")

MODEL_OPTIONS: Mapping[str, Kind] = {
    "device": (lambda value: _is_text(value) or _is_texts(value), "a name or a list of names"),
    "context": _WHOLE,
    "threads": _WHOLE,
    "kv_dtype": (_is_text, "a text"),
    "precision": (_is_text, "a text"),
    "gpu_layers": _WHOLE,
    "stream_layers": _SWITCH,
    "step_rows": _WHOLE,
    "sliced": _SWITCH,
}

ANSWER_OPTIONS: Mapping[str, Kind] = {
    "max_tokens": _WHOLE_OR_NULL,
    "stop": (_is_texts, "a list of texts"),
    "temperature": _NUMBER,
    "top_k": _WHOLE,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "repeat_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "logit_bias": (_is_bias, "an object of numbers by token id"),
    "seed": _WHOLE_OR_NULL,
}


def parse_options(text: str | None, known: Mapping[str, Kind]) -> dict[str, Any]:
    """The options of a call as keywords. Raises CallError."""
    options = {} if text is None else _parse(text, "The options")
    if not isinstance(options, dict):
        raise CallError(Status.INVALID_ARGUMENT, "The options are not a JSON object.")
    for name, value in options.items():
        if name not in known:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"The option {name!r} is unknown; the options are {', '.join(known)}.",
            )
        fits, meaning = known[name]
        if not fits(value):
            raise CallError(
                Status.INVALID_ARGUMENT, f"The option {name} is {value!r}; it takes {meaning}."
            )
    if "logit_bias" in options:
        options["logit_bias"] = {int(key): bias for key, bias in options["logit_bias"].items()}
    return options


def parse_messages(text: str) -> list[dict[str, Any]]:
    """A conversation. Raises CallError."""
    messages = _parse(text, "The messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise CallError(Status.INVALID_ARGUMENT, "The messages are not a JSON list of objects.")
    return messages


def _parse(text: str, what: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise ValueError("a name is given twice")
        return result

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        message = f"{what} are not valid JSON: {error}."
        raise CallError(Status.INVALID_ARGUMENT, message) from None
