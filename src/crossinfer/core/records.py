"""Frozen dataclasses that are defined quickly.

`dataclasses.dataclass(frozen=True)` compiles six methods for a class, 0.8 ms of a start for each of
a hundred classes. Five of them need no code of their own. A constructor, which takes 0.1 ms, is
compiled for a class of which some instances were made: most have a few in a start, and some have
thousands.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

_Class = TypeVar("_Class")
_FEW = 12
"""Instances that are made without compiled code, which takes a tenth as long for each."""


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[_Class]) -> type[_Class]:
    """As `dataclasses.dataclass(frozen=True)`; methods that the class has itself stay.

    What `dataclasses` offers for instances works. All fields are arguments, compared, and shown.
    What inherits from a record and has fields of its own is a record, too.
    """
    return _made(cls, by_value=True)


@typing.dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,)
)
def entity(cls: type[_Class]) -> type[_Class]:
    """As `record`, but an instance equals itself alone: `dataclass(frozen=True, eq=False)`."""
    return _made(cls, by_value=False)


def _made(cls: type[_Class], *, by_value: bool) -> type[_Class]:
    own = set(vars(cls))
    made: Any = dataclasses.dataclass(init=False, eq=False, repr=False)(cls)
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields)
    values = _getter(names)
    count = 0

    def construct(self: Any, *args: Any, **keywords: Any) -> None:
        nonlocal count
        count += 1
        if type(self) is made and count <= _FEW and _construct(self, fields, args, keywords):
            return
        made.__init__ = _constructor(made)
        made.__init__(self, *args, **keywords)

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def digest(self: Any) -> int:
        return hash(values(self))

    def text(self: Any) -> str:
        shown = (f"{n}={v!r}" for n, v in zip(names, values(self), strict=True))
        return f"{type(self).__qualname__}({', '.join(shown)})"

    methods: dict[str, Callable[..., Any]] = {
        "__init__": construct,
        "__repr__": text,
        "__setattr__": _refuse_assignment,
        "__delattr__": _refuse_deletion,
    }
    if by_value and "__eq__" not in own:
        methods |= {"__eq__": equal, "__hash__": digest}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return typing.cast(type[_Class], made)


def _construct(
    self: Any,
    fields: Sequence[dataclasses.Field[Any]],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
) -> bool:
    """Set the fields of a new instance; False, with nothing done, if the arguments don't fit."""
    if len(args) > len(fields):
        return False
    values = {field.name: value for field, value in zip(fields, args, strict=False)}
    if not values.keys().isdisjoint(keywords):
        return False
    values |= keywords
    for field in fields:
        if field.name in values:
            continue
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        else:
            return False
    if len(values) > len(fields):
        return False
    for field in fields:
        object.__setattr__(self, field.name, values[field.name])
    if hasattr(self, "__post_init__"):
        self.__post_init__()
    return True


def _constructor(cls: Any) -> Callable[..., None]:
    """The method that takes the fields of `cls` and sets them; then `__post_init__`, if any."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    arguments, body = ["self"], []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            arguments.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            arguments.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        else:
            arguments.append(name)
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n ".join(body or ["pass"])
    exec(f"def __init__({', '.join(arguments)}):\n {lines}", known)
    constructor: Callable[..., None] = known["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of so many attributes as a tuple."""
    if not names:
        return lambda _instance: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda instance: (get(instance),)


def _refuse_assignment(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
