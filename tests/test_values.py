"""hark's dataclasses against those of the standard library: the same class bodies, both ways."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from hark import values

MODULES = [dataclasses, values]


def make(module: Any) -> dict[str, type]:
    @module.dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        KIND: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: tuple[str, ...] = ()

        @property
        def norm(self) -> int:
            return self.x + self.y

    @module.dataclass(frozen=True, slots=True)
    class Named(Point):
        name: str = "p"
        y: int = 7

    @module.dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        a: int
        b: list[int] = module.field(default_factory=list)
        c: str = module.field(default="c", repr=False, compare=False)

    @module.dataclass(slots=True)
    class Counter:
        count: int = 0
        seen: set[int] = module.field(default_factory=set)
        twice: int = module.field(default=0, init=False)

        def __post_init__(self) -> None:
            self.twice = 2 * self.count

    @module.dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @module.dataclass(slots=True, eq=False)
    class Node:
        value: int

    return {cls.__name__: cls for cls in (Point, Named, Options, Counter, Empty, Node)}


STANDARD, OWN = map(make, MODULES)

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Point", (1,), {}),
    ("Point", (1, 3, ("t",)), {}),
    ("Point", (), {"x": 4, "tags": ()}),
    ("Point", (), {}),
    ("Point", (1, 2, (), 4), {}),
    ("Point", (1,), {"z": 1}),
    ("Named", (1, 2), {"name": "n"}),
    ("Named", (1,), {}),
    ("Options", (), {"a": 1}),
    ("Options", (1,), {}),
    ("Options", (), {"a": 1, "b": [3], "c": "d"}),
    ("Counter", (), {}),
    ("Counter", (3,), {"seen": {1}}),
    ("Counter", (3,), {"twice": 1}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
    ("Node", (1,), {}),
]


def outcome(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        made: Any = cls(*args, **kwargs)
    except TypeError:
        return TypeError
    same, other = cls(*args, **kwargs), copy.copy(made)
    try:
        hashed: Any = hash(made) == hash(same)
    except TypeError:
        hashed = TypeError
    if hashed is False:  # by identity
        assert hash(made) == hash(made)
    shown = repr(made).replace("make.<locals>.", "")
    return shown, made == same, made == other, made != object(), hashed, dataclasses.asdict(made)


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_it_makes_what_the_standard_library_makes(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
):
    assert outcome(OWN[name], args, kwargs) == outcome(STANDARD[name], args, kwargs)


@pytest.mark.parametrize("name", list(STANDARD))
def test_classes_look_the_same(name: str):
    own, standard = OWN[name], STANDARD[name]
    assert own.__slots__ == standard.__slots__  # type: ignore[attr-defined]
    assert own.__match_args__ == standard.__match_args__  # type: ignore[attr-defined]
    assert own.__qualname__ == standard.__qualname__
    assert (own.__hash__ is None) == (standard.__hash__ is None)
    for mine, theirs in zip(dataclasses.fields(own), dataclasses.fields(standard), strict=True):  # type: ignore[arg-type]
        for flag in ("name", "init", "repr", "compare", "kw_only", "default", "default_factory"):
            assert getattr(mine, flag) == getattr(theirs, flag), (name, mine.name, flag)


def test_what_is_frozen_stays():
    own: Any = OWN
    point = own["Point"](1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    with pytest.raises(AttributeError):
        point.other = 2
    counter = own["Counter"](1)
    counter.count = 5
    assert counter.count == 5
    with pytest.raises(AttributeError):
        counter.other = 5


@pytest.mark.parametrize("replace", [dataclasses.replace, values.replace])
def test_replace(replace: Any):
    named = OWN["Named"](1, name="a")
    assert replace(named, name="b") == OWN["Named"](1, name="b")
    with pytest.raises(TypeError):
        replace(named, nothing=1)


def test_fields_are_not_shared_and_ends_are_not_confused():
    counter = OWN["Counter"]
    assert counter().seen is not counter().seen  # type: ignore[attr-defined]
    assert OWN["Point"](1) != OWN["Named"](1)
    named: Any = OWN["Named"]
    match named(5, 7, (), "n"):
        case named(x, y, _, name):
            assert (x, y, name) == (5, 7, "n")
        case _:
            raise AssertionError


def test_a_mutable_default_is_refused():
    with pytest.raises(ValueError, match="mutable default"):

        @values.dataclass(frozen=True, slots=True)
        class _Bad:
            items: list[int] = []  # type: ignore[misc] # noqa: RUF012 - what is refused


def test_a_field_of_the_standard_library_is_refused():
    with pytest.raises(TypeError, match="take `field`"):

        @values.dataclass(frozen=True, slots=True)
        class _Mixed:
            items: list[int] = dataclasses.field(default_factory=list)


@values.dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: tuple[int, ...] = ()


def test_pickle_and_deepcopy():
    value = Pickled(1, (2,))
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes
    assert copy.deepcopy(value) == value


def test_it_does_not_import_the_standard_one():
    code = "import sys, hark.values, hark.launcher.ops; print('dataclasses' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    assert done.stdout == b"False\n"
