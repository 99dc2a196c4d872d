"""The environment that chat templates run in: jinja's sandbox, with all work charged to a budget.

Templates come with models, from strangers. Jinja's immutable sandbox keeps them from Python's
internals, but not from loops without end, `'a' * 10**9`, or lists that hold each other a billion
times. A clock in another thread cannot stop what runs inside one call of C, and a process of its
own costs more than loading a small model and isn't to be had in every host. So everything a
template can do is on a list here, and each thing on it is counted before it is done: operators and
calls below, filters and tests in `template_filters`, methods in `template_methods`, loops and what
jinja runs by itself in `template_rewrite`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from crossinfer.text.template_budget import TemplateLimit, budget, length
from crossinfer.text.template_filters import (
    bounded_filters,
    bounded_tests,
    charge_format,
)
from crossinfer.text.template_methods import check_key, cost_of
from crossinfer.text.template_rewrite import HOOKS, rewrite

_LARGEST_NUMBER = 4096  # bits


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """What transformers' `apply_chat_template` gives to templates, within a budget."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_printed,
        )
        self.filters.clear()
        self.filters.update(bounded_filters())
        self.filters.update({name: _hook(function) for name, function in HOOKS.items()})
        self.tests.clear()
        self.tests.update(bounded_tests())
        self.globals = {
            "dict": _make_dict,
            "namespace": _SafeNamespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "strftime_now": _strftime_now,
        }
        self._functions = frozenset(map(id, self.globals.values()))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return rewrite(super()._parse(source, name, filename))

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        spent = budget()
        if operator == "%" and isinstance(left, str):
            charge_format(spent, left, right)
        elif operator in ("**", "*") and isinstance(left, int) and isinstance(right, int):
            _check_product(operator, left, right)
        elif operator == "*" and not _both_numbers(left, right):
            count = left if isinstance(left, int) else right
            spent.write(16 * max(length(left), length(right)) * max(_as_int(count), 0))
        else:
            spent.step()
            for value in (left, right):
                spent.write(value.bit_length() if isinstance(value, int) else 0)
                spent.made(value)
        return super().call_binop(context, operator, left, right)

    def call(
        __self,  # noqa: N805 - named arguments of the template may be called anything
        __context: jinja2.runtime.Context,
        __function: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        spent = budget()
        spent.step(1 + len(args) + len(kwargs))
        # Compiled loops and blocks hand their variables along with the template's own arguments.
        named = {name: kwargs[name] for name in kwargs.keys() - {"_loop_vars", "_block_vars"}}
        owner = getattr(__function, "__self__", None)
        if isinstance(owner, LoopContext) or id(__function) in __self._functions:
            spent.measure((args, named))
        elif not isinstance(__function, Macro | LoopContext | _Format | jinja2.Undefined):
            cost = cost_of(__function)
            if cost is None:
                raise jinja2.exceptions.SecurityError(
                    "it calls something that templates may not call"
                )
            cost(spent, owner, *args, **named)
        result = super().call(__context, __function, *args, **kwargs)
        spent.made(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        check_key(argument)
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _Format(value.__self__, wrapped)


class _Format:
    """`str.format` of one string, charged for."""

    def __init__(self, form: str, function: Callable[..., str]) -> None:
        self._form = form
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        charge_format(budget(), self._form, (args, kwargs))
        return self._function(*args, **kwargs)


class _SafeNamespace(Namespace):
    """Jinja's, without names that begin with an underscore, as transformers has it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class _Generation(Extension):
    """`{% generation %}` marks answers for training; here it only wraps its body."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _hook(function: Callable[..., Any]) -> Callable[..., Any]:
    # What takes the context isn't run when the template is compiled.
    @pass_context
    def run(_context: jinja2.runtime.Context, *args: Any) -> Any:
        return function(*args)

    return run


@pass_context
def _printed(_context: jinja2.runtime.Context, value: Any) -> Any:
    budget().measure(value)
    return value


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"a namespace may not have the name {name!r}, which begins with an underscore"
        )


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _check_product(operator: str, left: int, right: int) -> None:
    bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length()
    if bits + right.bit_length() > _LARGEST_NUMBER:
        raise TemplateLimit("it computes a number that is too large")


def _both_numbers(left: Any, right: Any) -> bool:
    return isinstance(left, int | float) and isinstance(right, int | float)


def _as_int(value: Any) -> int:
    return value if isinstance(value, int) else 0
