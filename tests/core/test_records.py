"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
from typing import Any

import pytest

from crossinfer.core import records
from crossinfer.core.records import entity, record


@record
class Nothing:
    """No fields."""


@record
class One:
    """One field."""

    value: Any


@record
class Several:
    """Fields with defaults."""

    first: int
    second: tuple[int, ...] = ()
    third: list[int] = dataclasses.field(default_factory=list)


@record
class Extended(One):
    """A further field."""

    further: int = 3


@record
class Peculiar:
    """Methods of its own."""

    value: int

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "peculiar"


@record
class Careless:
    """Equal to everything, so without a hash."""

    value: int

    def __eq__(self, other: object) -> bool:
        return True


def as_dataclass(cls: type) -> Any:
    """The same class as the standard library makes it."""
    fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True)


@entity
class Thing:
    """Not what it says, but which one it is."""

    name: str


@record
class Checked:
    """A value that is looked at."""

    value: int = 1

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"{self.value} is negative")

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.value


ARGUMENTS = [(Nothing, ()), (One, ((1, 2),)), (Several, (1, (2, 3))), (Extended, ("x",))]


@pytest.mark.parametrize(("cls", "arguments"), ARGUMENTS)
def test_comparison_text_and_copies_are_those_of_a_dataclass(
    cls: Any, arguments: tuple[Any, ...]
) -> None:
    made, again, expected = cls(*arguments), cls(*arguments), as_dataclass(cls)(*arguments)
    assert repr(made) == repr(expected)
    assert made == again
    assert made != expected
    assert dataclasses.asdict(made) == dataclasses.asdict(expected)
    assert dataclasses.replace(made) == made == copy.deepcopy(made)
    assert pickle.loads(pickle.dumps(made)) == made
    if cls is not Several:  # which has a list
        assert hash(made) == hash(again) == hash(expected)


def test_values_decide() -> None:
    assert Several(1, (2,)) != Several(1, (3,))
    assert Several(1, (2,)) == dataclasses.replace(Several(1), second=(2,))
    assert One(1) != Extended(1)
    assert len({One(1), One(1), One(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Several(1))


def test_fields_cannot_be_changed() -> None:
    made = One(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.value = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.value


def test_arguments_are_checked_by_name_and_number() -> None:
    for _ in range(2):  # before and after the constructor is compiled
        with pytest.raises(TypeError, match=r"One.__init__\(\) missing 1 required .* 'value'"):
            One()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
            One(value=1, other=2)  # type: ignore[call-arg]
        assert One(value=1) == One(1)
    assert Several(1).third is not Several(1).third
    assert Extended(1, further=4) == Extended(value=1, further=4)


def test_many_instances_are_made_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    constructor = records._constructor

    def noting(cls: Any) -> Any:
        compiled.append(cls.__name__)
        return constructor(cls)

    monkeypatch.setattr(records, "_constructor", noting)

    @record
    class Fresh:
        first: int
        second: tuple[int, ...] = ()
        third: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError(f"{self.first} is negative")

    made = [Fresh(number % 3, third=[number]) for number in range(2 * records._FEW)]
    assert compiled == ["Fresh"]
    assert [one.first for one in made] == [number % 3 for number in range(2 * records._FEW)]
    assert {one.second for one in made} == {()}
    assert [one.third for one in made] == [[number] for number in range(2 * records._FEW)]
    assert Fresh(1, third=[1]) == made[1]
    with pytest.raises(ValueError, match="-1 is negative"):
        Fresh(-1)


@pytest.mark.parametrize(
    ("arguments", "keywords", "wrong"),
    [
        ((), {}, "missing 1 required"),
        ((1, 2, 3, 4), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        ((1,), {"first": 1}, "multiple values for argument 'first'"),
        ((1,), {"fourth": 1}, "unexpected keyword argument 'fourth'"),
    ],
)
def test_the_first_instance_has_its_arguments_checked(
    arguments: tuple[Any, ...], keywords: dict[str, Any], wrong: str
) -> None:
    @record
    class Fresh:
        first: int
        second: tuple[int, ...] = ()
        third: int = 0

    with pytest.raises(TypeError, match=wrong):
        Fresh(*arguments, **keywords)


def test_an_entity_equals_itself_alone() -> None:
    made = Thing("a")
    assert made == made
    assert made != Thing("a")
    assert len({made, Thing("a")}) == 2
    assert repr(made) == "Thing(name='a')"
    assert dataclasses.replace(made, name="b").name == "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]


def test_values_are_looked_at_and_kept() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        Checked(-1)
    assert Checked().doubled == 2


def test_methods_of_the_class_stay() -> None:
    assert hash(Peculiar(1)) == 7
    assert repr(Peculiar(1)) == "peculiar"
    assert Peculiar(1) == Peculiar(1) != Peculiar(2)
    assert Careless(1) == Careless(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Careless(1))
