"""The methods of strings, lists and dicts that a chat template may call, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crossinfer.text.template_budget import Budget, TemplateLimit, length
from crossinfer.text.template_filters import charge_join, charge_replace

Cost = Callable[..., None]


def _reading(spent: Budget, text: str, *arguments: Any, **_named: Any) -> None:
    spent.write(len(text) + sum(map(length, arguments)))


def _padding(spent: Budget, text: str, *arguments: Any, **named: Any) -> None:
    _reading(spent, text)
    for argument in (*arguments, *named.values()):
        if isinstance(argument, int):
            spent.write(argument)


def _tabs(spent: Budget, text: str, tabsize: Any = 8) -> None:
    _reading(spent, text)
    spent.write(text.count("\t") * tabsize)


def _replacing(spent: Budget, text: str, old: Any, new: Any, *_count: Any) -> None:
    charge_replace(spent, text, old, new)


def _joining(spent: Budget, separator: str, values: Any) -> None:
    charge_join(spent, values, separator)


def _walking(spent: Budget, container: Any, *arguments: Any) -> None:
    spent.measure(container)
    spent.measure(arguments)


def _copying(spent: Budget, container: Any) -> None:
    spent.made(container)


def _looking_up(spent: Budget, _container: Any, key: Any = None, *_default: Any) -> None:
    check_key(key)
    spent.step()


_READING = """
capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier
islower isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix
removesuffix rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title
upper
"""

_METHODS: dict[type, dict[str, Cost]] = {
    str: {
        **dict.fromkeys(_READING.split(), _reading),
        **dict.fromkeys(["center", "ljust", "rjust", "zfill"], _padding),
        "expandtabs": _tabs,
        "join": _joining,
        "replace": _replacing,
    },
    list: {"count": _walking, "index": _walking, "copy": _copying},
    tuple: {"count": _walking, "index": _walking},
    dict: {
        "copy": _copying,
        "get": _looking_up,
        **dict.fromkeys(["items", "keys", "values"], lambda spent, _: spent.step()),
    },
    float: {"is_integer": lambda spent, _: spent.step()},
}


def cost_of(method: Any) -> Cost | None:
    """What calling `method`, bound to a value, costs; None if a template may not call it.

    The cost is called with the budget, the value and the arguments.
    """
    owner = getattr(method, "__self__", None)
    for kind, costs in _METHODS.items():
        if isinstance(owner, kind):
            return costs.get(getattr(method, "__name__", ""))
    return None


def check_key(key: Any) -> None:
    """Raises TemplateLimit for a key that is a list itself: to hash it may take very long."""
    if isinstance(key, list | tuple | dict | frozenset):
        raise TemplateLimit("it uses a list as a key")
