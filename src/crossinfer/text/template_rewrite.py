"""Puts charges into a parsed chat template, where jinja would run something without a call.

Loops and macros get a step for each expression and character of their body, whenever it begins;
concatenation, comparison, slices and keys of dicts become filters of ours (`HOOKS`), whose names no
template can write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from crossinfer.text.template_budget import budget
from crossinfer.text.template_filters import charge_comparison
from crossinfer.text.template_methods import check_key

TICK, JOIN, COMPARE, SLICED, KEY = "tick!", "join!", "compare!", "sliced!", "key!"


# Python compiles no more than 20 blocks inside each other.
_DEEPEST_LOOPS = 16


def rewrite(template: nodes.Template) -> nodes.Template:
    """`template` with the charges in it."""
    _Rewriter().visit(template)
    return template


class _Rewriter(NodeTransformer):
    def __init__(self) -> None:
        self._depth = 0

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja names it so
        tick = _tick(node)
        if self._depth == _DEEPEST_LOOPS:
            raise jinja2.TemplateSyntaxError("loops are nested too deeply", node.lineno)
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        if node.test is not None:  # runs for each item, taken or not
            node.test = nodes.And(_tick(node), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        tick = _tick(node)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        tick = _tick(node)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _hook(JOIN, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        left = node.expr
        result: nodes.Expr | None = None
        for operand in node.ops:
            one = _comparison(left, operand)
            result = one if result is None else nodes.And(result, one, lineno=node.lineno)
            left = operand.expr
        return node if result is None else result

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _hook(SLICED, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _hook(KEY, node.key)
        return node


def _comparison(left: nodes.Expr, operand: nodes.Operand) -> nodes.Expr:
    if operand.op in ("eq", "ne") and isinstance(operand.expr, nodes.Const):
        # No longer than the constant, whatever is on the left.
        return nodes.Compare(left, [operand], lineno=left.lineno)
    return _hook(COMPARE, left, nodes.Const(operand.op), operand.expr)


def _hook(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


def _tick(node: nodes.Node) -> nodes.Filter:
    steps = sum(1 for _ in node.find_all(nodes.Node))
    text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    return nodes.Filter(
        nodes.Const(steps), TICK, [nodes.Const(text)], [], None, None, lineno=node.lineno
    )


def _do_tick(steps: int, characters: int) -> bool:
    spent = budget()
    spent.step(steps)
    spent.write(characters)
    return True


def _do_join(parts: list[Any]) -> str:
    budget().measure(parts)
    return "".join(map(str, parts))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda item, values: item in values,
    "notin": lambda item, values: item not in values,
}


def _do_compare(left: Any, name: str, right: Any) -> Any:
    charge_comparison(budget(), left, right)
    return _OPERATORS[name](left, right)


def _do_sliced(value: Any) -> Any:
    budget().made(value)
    return value


def _do_key(key: Any) -> Any:
    check_key(key)
    return key


HOOKS: dict[str, Callable[..., Any]] = {
    TICK: _do_tick,
    JOIN: _do_join,
    COMPARE: _do_compare,
    SLICED: _do_sliced,
    KEY: _do_key,
}
"""The filters that a rewritten template calls."""
