"""Jinja's filters and tests for chat templates, each charged for before it runs.

Left out are those that no chat template needs and whose cost is hard to tell: pprint, striptags,
urlize, xmlattr. What others give as an iterator becomes a list, so that nothing is left to run
later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import jinja2
from jinja2.filters import FILTERS
from jinja2.tests import TESTS
from jinja2.utils import _PassArg, pass_context

from crossinfer.text.template_budget import Budget, TemplateLimit, budget, length

Cost = Callable[..., None]
"""Charges a Budget for a call, from the value and the other arguments."""

_LEFT_OUT = {"pprint", "striptags", "urlize", "xmlattr"}
_CONSTANT = {"count", "d", "default", "first", "length", "random", "safe", "int", "float", "abs"}
_SHALLOW = {"items", "last", "list", "map", "reject", "rejectattr", "reverse", "select"}
_SHALLOW |= {"selectattr", "filesizeformat", "attr"}
_WIDEST = 10_000
_NESTED_FIELD = re.compile(r"\{[^{}]*\{(?!\{)")


def _width(value: Any) -> int:
    """A width or count that a template asks for; large ones have no use but harm."""
    if not isinstance(value, int):
        return length(value)
    if abs(value) > _WIDEST:
        raise TemplateLimit(f"it asks for a width or count of {value}; at most {_WIDEST} is taken")
    return abs(value)


def _shallow(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    spent.step(length(value) if not isinstance(value, str) else 1)
    spent.made(value)
    spent.step(len(arguments) + len(named))


def _pieces(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    _shallow(spent, value)
    for argument in (*arguments, *named.values()):
        if isinstance(argument, int):
            spent.made([None] * _width(argument))


def _deep(spent: Budget, *values: Any, **named: Any) -> None:
    for value in (*values, *named.values()):
        spent.measure(value)


def _padded(spent: Budget, *values: Any, **named: Any) -> None:
    _deep(spent, *values, **named)
    for value in (*values[1:], *named.values()):
        spent.write(_width(value))


def _lines(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    """For what puts something into or before each line: the text times the widths."""
    _deep(spent, value, *arguments, **named)
    for argument in (*arguments, *named.values()):
        spent.write(spent.measure(value)[1] * _width(argument))


def _sorting(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    spent.step(spent.measure(value)[0] * length(value).bit_length())
    _deep(spent, *arguments, **named)


def _adding(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    values, characters = spent.measure(value)
    _deep(spent, *arguments, **named)
    if values > 2 * length(value):  # a sum of lists copies what it has for each
        spent.write(length(value) * (values + characters))


def charge_format(spent: Budget, form: str, arguments: Any) -> None:
    """For % and str.format. Raises TemplateLimit also for widths of five digits and more."""
    digits = 0
    for char in form:
        digits = digits + 1 if char.isdigit() else 0
        if digits > 4:
            raise TemplateLimit("its format has a number of five digits or more")
    if "*" in form or _NESTED_FIELD.search(form):
        raise TemplateLimit("its format takes a width from an argument")
    fields = form.count("%") + form.count("{")
    _, characters = spent.measure(arguments)
    spent.write(len(form) + fields * (characters + _WIDEST if any(map(str.isdigit, form)) else 0))
    spent.write(fields * characters)


def charge_replace(spent: Budget, text: str, old: Any, new: Any) -> None:
    """For str.replace."""
    spent.write(len(text))
    if isinstance(old, str) and isinstance(new, str):
        spent.write((text.count(old) if old else len(text) + 1) * len(new))


def charge_join(spent: Budget, values: Any, separator: Any) -> None:
    """For joining values, which are written out."""
    spent.measure(values)
    spent.write(length(values) * length(separator))


def _replacing(spent: Budget, value: Any, old: Any, new: Any, *count: Any) -> None:
    spent.measure(value)
    charge_replace(spent, str(value), old, new)
    _deep(spent, *count)


def _joining(spent: Budget, value: Any, d: Any = "", attribute: Any = None) -> None:
    charge_join(spent, value, d)
    spent.measure(attribute)


def _formatting(spent: Budget, value: Any, *arguments: Any, **named: Any) -> None:
    charge_format(spent, str(value), (arguments, named))


def _as_json(
    spent: Budget, value: Any, ensure_ascii: Any = False, indent: Any = None, **named: Any
) -> None:
    values, _ = spent.measure(value)
    for argument in (indent, *(named.get("separators") or ())):
        width = argument if isinstance(argument, int) else length(argument or "")
        if width > 16:
            raise TemplateLimit("it asks tojson for an indent or separator of more than 16")
        spent.write(values * width * (8 if indent else 1))
    spent.measure(ensure_ascii)


_COSTS: dict[str, Cost] = {
    "batch": _pieces,
    "slice": _pieces,
    "center": _padded,
    "format": _formatting,
    "groupby": _sorting,
    "indent": _lines,
    "join": _joining,
    "replace": _replacing,
    "round": _padded,
    "sort": _sorting,
    "dictsort": _sorting,
    "sum": _adding,
    "tojson": _as_json,
    "wordwrap": _lines,
}


def _constant(spent: Budget, *values: Any, **named: Any) -> None:
    spent.step(len(values) + len(named))


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: jinja's own escapes HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def bounded(function: Callable[..., Any], cost: Cost) -> Callable[..., Any]:
    """`function`, a filter or test of jinja, charged to the current budget by `cost`."""
    passed = _PassArg.from_obj(function)

    @pass_context
    def run(context: jinja2.runtime.Context, *arguments: Any, **named: Any) -> Any:
        spent = budget()
        spent.step(1 + len(arguments) + len(named))
        cost(spent, *arguments, **named)
        if passed is _PassArg.context:
            arguments = (context, *arguments)
        elif passed is _PassArg.eval_context:
            arguments = (context.eval_ctx, *arguments)
        elif passed is _PassArg.environment:
            arguments = (context.environment, *arguments)
        result = function(*arguments, **named)
        if isinstance(result, Iterator):
            return spent.collected(result)
        if cost is not _constant:
            spent.made(result)
        return result

    return run


def bounded_filters() -> dict[str, Callable[..., Any]]:
    """All filters that a template may use."""
    filters: dict[str, Callable[..., Any]] = {**FILTERS, "tojson": tojson, "safe": _unchanged}
    result = {}
    for name, function in filters.items():
        cost = _constant if name in _CONSTANT else _shallow if name in _SHALLOW else _deep
        if name not in _LEFT_OUT:
            result[name] = bounded(function, _COSTS.get(name, cost))
    return result


def bounded_tests() -> dict[str, Callable[..., Any]]:
    """All tests that a template may use."""
    light = {"defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number"}
    light |= {"true", "false", "boolean", "integer", "float", "callable", "sameas", "odd", "even"}
    tests = cast(dict[str, Callable[..., Any]], TESTS)
    return {
        name: bounded(function, _constant if name in light else _comparing)
        for name, function in tests.items()
    }


def _comparing(spent: Budget, *values: Any, **named: Any) -> None:
    charge_comparison(spent, *values, *named.values())


def charge_comparison(spent: Budget, *values: Any) -> None:
    """For comparing values or looking for one in another."""
    heavy = [value for value in values if not isinstance(value, int | float | None)]
    if len(heavy) > 1:
        for value in heavy:
            spent.measure(value)


def _unchanged(value: Any) -> Any:
    # Nothing is escaped here. (In transformers, what is added to a safe text is, which spoils it.)
    return value
