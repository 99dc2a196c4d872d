"""How much work one rendering of a chat template may do.

A step is about one expression evaluated, a character one that is written somewhere. Both are
counted before the work is done, so that neither time nor memory can run away, and a count, unlike a
clock, gives the same answer on every machine.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

_STEPS = 200_000
_STEPS_PER_VALUE = 1_000
_CHARACTERS = 4_000_000
_CHARACTERS_PER_CHARACTER = 64
_DEEPEST = 100

# What an entry of a list takes, in characters.
_ENTRY = 16


class TemplateLimit(Exception):  # noqa: N818 - what it is, not an error of ours
    """A template wants to do more than it may."""


class Budget:
    """What is left of the steps and characters."""

    def __init__(self, given: Any) -> None:
        """`given` is what is rendered: the more there is of it, the more may be done."""
        self._steps = self._characters = 1 << 60
        values, characters = self.measure(given)
        self._steps = _STEPS + _STEPS_PER_VALUE * values
        self._characters = _CHARACTERS + _CHARACTERS_PER_CHARACTER * characters

    def step(self, count: int = 1) -> None:
        """Do `count` steps. Raises TemplateLimit."""
        self._steps -= max(count, 0)
        if self._steps < 0:
            raise TemplateLimit("it takes too many steps; perhaps a loop does not end")

    def write(self, count: int) -> None:
        """Write `count` characters. Raises TemplateLimit."""
        self._characters -= max(count, 0)
        if self._characters < 0:
            raise TemplateLimit("it writes too much text")

    def measure(self, value: Any) -> tuple[int, int]:
        """The values and characters in `value`, shared ones as often as they appear.

        That is what printing or comparing it costs, and it is charged. Raises TemplateLimit, also
        for what is nested too deeply.
        """
        values = characters = 0
        stack: list[tuple[Any, int]] = [(value, 0)]
        while stack:
            item, depth = stack.pop()
            values += 1
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, int):
                characters += item.bit_length() // 3
            else:
                inside = _inside(item)
                if inside and depth == _DEEPEST:
                    raise TemplateLimit("its lists are nested too deeply")
                stack += [(entry, depth + 1) for entry in inside]
            if values > self._steps or characters > self._characters:
                break
        self.step(values)
        self.write(characters)
        return values, characters

    def made(self, value: Any) -> None:
        """Charge for a string or list that an operation made. Raises TemplateLimit."""
        if isinstance(value, str):
            self.write(len(value))
        elif isinstance(value, list | tuple | dict):
            self.write(_ENTRY * len(value))

    def collected(self, values: Iterable[Any]) -> list[Any]:
        """All of `values`, each a step. Raises TemplateLimit."""
        result = []
        for value in values:
            self.step()
            self.write(_ENTRY)
            result.append(value)
        return result


def length(value: Any) -> int:
    """How many entries or characters `value` has; 1 for what has none."""
    return len(value) if isinstance(value, Sized) else 1


def _inside(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | range):
        return item
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, Iterable) and isinstance(item, Sized):  # views of dicts, sets
        return list(item)
    attributes = getattr(item, "_Namespace__attrs", None)  # jinja's namespaces
    return attributes.values() if isinstance(attributes, dict) else ()


_current: contextvars.ContextVar[Budget] = contextvars.ContextVar("template_budget")


def budget() -> Budget:
    """The budget of the rendering that is going on."""
    return _current.get()


@contextmanager
def spending(given: Any) -> Iterator[None]:
    """Within the block, work is charged to a new budget."""
    token = _current.set(Budget(given))
    try:
        yield
    finally:
        _current.reset(token)
